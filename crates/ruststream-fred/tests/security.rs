//! Links over TLS, users of the server's ACL, databases by number; on a real server with certificates made here.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use ruststream::transport::{Broker as _, Connection as _, ErrorKind, TransportError, Verdict};
use ruststream_fred::{CredentialProvider, RedisBroker, RedisStream};
use support::{Reader, Server, numbers, payloads, publish};

async fn works(broker: &RedisBroker, stream: &str) -> Result<(), TransportError> {
    let connection = broker.connect().await?;
    let mut reader = Reader::open(RedisStream::new(stream), &connection).await;
    publish(&connection, stream, &numbers(0..3)).await;
    let taken = reader.take(3).await;
    assert_eq!(payloads(&taken), numbers(0..3));
    reader.end(taken, Verdict::Ack).await;
    connection.close().await;
    Ok(())
}

#[cfg(feature = "tls")]
mod tls {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};

    use super::*;

    struct Authority(CertifiedIssuer<'static, KeyPair>);

    impl Authority {
        fn new() -> Self {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
                .distinguished_name
                .push(DnType::CommonName, "the authority of a test");
            Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
        }

        /// A certificate and its key, in PEM.
        fn signs(&self, usage: ExtendedKeyUsagePurpose) -> (String, String) {
            let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
            let mut params = CertificateParams::new(names).unwrap();
            params.extended_key_usages.push(usage);
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &self.0).unwrap();
            (certificate.pem(), key.serialize_pem())
        }
    }

    /// Has the server listen for TLS too, and answers where.
    fn listens(server: &Server, authority: &Authority) -> u16 {
        let place = server.instance.place();
        let (certificate, key) = authority.signs(ExtendedKeyUsagePurpose::ServerAuth);
        let write = |name: &str, text: &str| {
            std::fs::write(place.join(name), text).unwrap();
            place.join(name).display().to_string()
        };
        let files = [
            ("tls-cert-file", write("server.pem", &certificate)),
            ("tls-key-file", write("server.key", &key)),
            ("tls-ca-cert-file", write("authority.pem", &authority.0.pem())),
            ("tls-auth-clients", "optional".to_owned()),
        ];
        let mut words = vec!["CONFIG", "SET"];
        for (name, value) in &files {
            words.extend([*name, value.as_str()]);
        }
        assert_eq!(server.cli(&words).trim(), "OK");
        // Free a moment ago.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let said = server.cli(&["CONFIG", "SET", "tls-port", &port.to_string()]);
        assert_eq!(said.trim(), "OK");
        port
    }

    #[tokio::test]
    async fn a_server_is_trusted_by_the_certificate_of_its_authority() {
        let authority = Authority::new();
        let server = Server::start();
        let port = listens(&server, &authority);
        let broker = || RedisBroker::standalone(format!("rediss://127.0.0.1:{port}"));

        works(&broker().trusted_certificates(authority.0.pem()), "orders")
            .await
            .unwrap();

        let stranger = broker().connect().await.unwrap_err();
        assert!(
            stranger.to_string().to_lowercase().contains("certificate"),
            "{stranger}"
        );
        let other = Authority::new().0.pem();
        assert!(broker().trusted_certificates(other).connect().await.is_err());
    }

    #[tokio::test]
    async fn a_server_that_asks_who_connects_is_shown_a_certificate() {
        let authority = Authority::new();
        let server = Server::start();
        let port = listens(&server, &authority);
        server.cli(&["CONFIG", "SET", "tls-auth-clients", "yes"]);
        let broker = RedisBroker::standalone(format!("rediss://127.0.0.1:{port}"));
        let broker = broker.trusted_certificates(authority.0.pem());
        assert!(broker.connect().await.is_err(), "no certificate is shown");
        let (certificate, key) = authority.signs(ExtendedKeyUsagePurpose::ClientAuth);

        works(&broker.client_certificate(certificate, key), "orders")
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn certificates_that_cannot_be_used_are_told_without_connecting() {
        let secure = || RedisBroker::standalone("rediss://localhost:1");
        for broker in [
            secure().trusted_certificates("no PEM"),
            secure().client_certificate("no PEM", "no key"),
            RedisBroker::standalone("redis://localhost:1").trusted_certificates(Authority::new().0.pem()),
        ] {
            let error = broker.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
    }
}

/// A user may do all that the crate does on its own names, and nothing on others.
#[tokio::test]
async fn a_user_of_the_acl_needs_the_keys_and_channels_of_its_names_alone() {
    let server = Server::start();
    let allowed = [
        "ACL",
        "SETUSER",
        "shop",
        "on",
        ">secret",
        "~*orders*",
        "&*orders*",
        "+@all",
        "-@admin",
        "-@dangerous",
    ];
    assert_eq!(server.cli(&allowed).trim(), "OK");
    let port = server.instance.port();
    let broker = RedisBroker::standalone(format!("redis://shop:secret@127.0.0.1:{port}"));

    works(&broker, "orders").await.unwrap();

    let connection = broker.connect().await.unwrap();
    let message = [ruststream::message::Outgoing::new("invoices", b"1")];
    let error = ruststream::transport::Publish::publish(&connection.publisher(), &message)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("ACL SETUSER"), "{error}");
    let wrong = RedisBroker::standalone(format!("redis://shop:wrong-secret@127.0.0.1:{port}"));
    let error = wrong.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(!error.to_string().contains("wrong-secret"), "{error}");
}

/// Counts how often it is asked; its password is that of the moment.
struct Rotating(&'static AtomicUsize);

impl CredentialProvider for Rotating {
    async fn credentials(&self) -> Result<(String, String), TransportError> {
        let asked = self.0.fetch_add(1, Ordering::Relaxed);
        Ok(("shop".to_owned(), if asked == 0 { "old" } else { "new" }.to_owned()))
    }
}

#[tokio::test]
async fn a_provider_is_asked_before_each_link_is_made() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let server = Server::start();
    for password in [">old", ">new"] {
        server.cli(&["ACL", "SETUSER", "shop", "on", password, "~*", "&*", "+@all"]);
    }
    let broker = server.broker().credential_provider(Rotating(&ASKED));
    let connection = broker.connect().await.unwrap();
    server.cli(&["ACL", "SETUSER", "shop", "<old"]);
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    while connection.ping().await.is_err() {}

    let mut reader = Reader::open(RedisStream::new("orders"), &connection).await;
    publish(&connection, "orders", &["1"]).await;

    assert_eq!(payloads(&reader.take(1).await), ["1"]);
    assert!(ASKED.load(Ordering::Relaxed) >= 2);
}

#[tokio::test]
async fn a_database_is_chosen_by_its_number() {
    let server = Server::start();
    let port = server.instance.port();
    works(&RedisBroker::standalone(format!("redis://127.0.0.1:{port}/3")), "third")
        .await
        .unwrap();
    works(&server.broker().database(5), "fifth").await.unwrap();

    assert_eq!(server.cli(&["-n", "3", "EXISTS", "third"]).trim(), "1");
    assert_eq!(server.cli(&["-n", "5", "EXISTS", "fifth"]).trim(), "1");
    assert_eq!(server.cli(&["EXISTS", "third", "fifth"]).trim(), "0");
}
