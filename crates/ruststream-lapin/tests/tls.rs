//! Links over TLS, and users that are known by their certificates; on a real server with certificates made here.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::fs;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use ruststream::message::Outgoing;
use ruststream::transport::{Broker, Connection, ErrorKind, Fetch, Publish, Source};
use ruststream_lapin::{LapinBroker, Queue};
use servers::{Instance, Kind, Settings};
use tokio::time::timeout;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "tests");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate and its key, in PEM.
    fn signs(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages.push(usage);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A server with a port for TLS, which takes users by their certificates.
fn server(authority: &Authority) -> (Instance, u16) {
    let mut server = Instance::start(Kind::Rabbit, Settings::default()).unwrap();
    let (certificate, key) = authority.signs("server", ExtendedKeyUsagePurpose::ServerAuth);
    let place = server.place().to_owned();
    let write = |name: &str, text: &str| {
        fs::write(place.join(name), text).unwrap();
        place.join(name).display().to_string()
    };
    let (authority, certificate, key) = (
        write("authority.pem", &authority.0.pem()),
        write("server.pem", &certificate),
        write("server.key", &key),
    );
    // Free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let lines = format!(
        "listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.cacertfile = {authority}\nssl_options.certfile = {certificate}\n\
         ssl_options.keyfile = {key}\nssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = false\n\
         auth_mechanisms.1 = PLAIN\nauth_mechanisms.2 = EXTERNAL\nssl_cert_login_from = common_name\n"
    );
    server.configure_rabbit(&lines).unwrap();
    (server, port)
}

async fn works(broker: LapinBroker, queue: &str) {
    let connection = broker.declare(Queue::new(queue)).connect().await.unwrap();
    connection
        .publisher()
        .publish(&[Outgoing::new(queue, b"x")])
        .await
        .unwrap();
    let (mut fetch, settle) = Queue::new(queue).open(&connection).await.unwrap();
    let mut taken = Vec::new();
    timeout(Duration::from_secs(10), fetch.fetch(1, &mut taken))
        .await
        .expect("nothing came")
        .unwrap();
    drop(settle);
    connection.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_trusted_by_its_certificate_and_a_user_known_by_his() {
    let authority = Authority::new();
    let (server, port) = server(&authority);
    let pem = authority.0.pem();
    let url = |user: &str| format!("amqps://{user}127.0.0.1:{port}/%2f");

    works(
        LapinBroker::new(url("guest:guest@")).trusted_certificates(&pem),
        "plain",
    )
    .await;

    // Who signed it is not known here.
    let stranger = LapinBroker::new(url("guest:guest@")).connect().await.unwrap_err();
    assert!(
        stranger.to_string().to_lowercase().contains("certificate"),
        "{stranger}"
    );
    let wrong = LapinBroker::new(url("guest:wrong@"))
        .trusted_certificates(&pem)
        .connect()
        .await
        .unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Denied, "{wrong}");

    server.rabbitmqctl(&["add_user", "orders", "unused"]).unwrap();
    server
        .rabbitmqctl(&["set_permissions", "orders", ".*", ".*", ".*"])
        .unwrap();
    let (certificate, key) = authority.signs("orders", ExtendedKeyUsagePurpose::ClientAuth);
    let external = LapinBroker::new(url("")).trusted_certificates(&pem).external();
    let known = external.clone().client_certificate(certificate, key);
    assert!(!format!("{known:?}").contains("PRIVATE"), "a key is told");
    works(known, "external").await;

    let (certificate, key) = authority.signs("nobody", ExtendedKeyUsagePurpose::ClientAuth);
    let unknown = external
        .clone()
        .client_certificate(certificate, key)
        .connect()
        .await
        .unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Denied, "{unknown}");
    let nameless = external.connect().await.unwrap_err();
    assert!(!nameless.is_transient(), "{nameless}");
}
