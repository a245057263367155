//! Links over TLS, certificates of clients, users and passwords; on a real server with certificates made here.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod support;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use ruststream::transport::{Broker, Connection, ErrorKind, TransportError};
use ruststream_rumqttc::{MqttBroker, MqttVersion, TopicFilter};
use servers::Kind;
use support::{PATIENCE, Reader, payloads, publish, until};
use tempfile::TempDir;

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

/// A server that listens for TLS, and knows one user where it asks for users.
struct Server {
    running: Child,
    port: u16,
    _place: TempDir,
}

impl Server {
    async fn start(authority: &Authority, asks_for_certificates: bool, asks_for_users: bool) -> Self {
        // Where Mosquitto is not installed, this does it.
        servers::shared(Kind::Mosquitto).unwrap();
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = place.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (certificate, key) = authority.signs(ExtendedKeyUsagePurpose::ServerAuth);
        // Free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let users = if asks_for_users {
            let file = place.path().join("users");
            add_user(&file, "orders", "se:cret@1");
            format!("allow_anonymous false\npassword_file {}\n", file.display())
        } else {
            "allow_anonymous true\n".to_owned()
        };
        // Root becomes `mosquitto`, who may not read what is of root alone.
        let user = "user root\n";
        let configuration = format!(
            "listener {port} 127.0.0.1\ncertfile {}\nkeyfile {}\ncafile {}\nrequire_certificate {asks_for_certificates}\n{user}{users}",
            write("server.pem", &certificate),
            write("server.key", &key),
            write("authority.pem", &authority.0.pem()),
        );
        let file = write("mosquitto.conf", &configuration);
        let running = Command::new("/usr/sbin/mosquitto")
            .args(["-c", &file])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("a server", PATIENCE, || TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
        Self {
            running,
            port,
            _place: place,
        }
    }

    fn broker(&self, authority: &Authority) -> MqttBroker {
        MqttBroker::new(format!("mqtts://127.0.0.1:{}", self.port)).trusted_certificates(authority.0.pem())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

fn add_user(file: &Path, user: &str, password: &str) {
    let made = Command::new("mosquitto_passwd")
        .args(["-c", "-b"])
        .arg(file)
        .args([user, password])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

async fn works(broker: &MqttBroker) -> Result<(), TransportError> {
    let connection = broker.connect().await?;
    let mut reader = Reader::open(TopicFilter::new("orders"), &connection).await;
    // More than a record of TLS holds, so that it takes several pieces.
    let large = vec![b'x'; 500_000];
    publish(&connection, "orders", &[b"small".to_vec(), large]).await;
    let taken = reader.take(2).await;
    assert_eq!(payloads(&taken)[0], "small");
    assert_eq!(payloads(&taken)[1].len(), 500_000);
    reader.ack(taken).await;
    connection.ping().await?;
    connection.close().await;
    Ok(())
}

#[tokio::test]
async fn a_server_is_trusted_by_the_certificate_of_its_authority() {
    let authority = Authority::new();
    let server = Server::start(&authority, false, false).await;
    works(&server.broker(&authority)).await.unwrap();
    works(&server.broker(&authority).version(MqttVersion::V3_1_1))
        .await
        .unwrap();
    let error = server.broker(&Authority::new()).connect().await.unwrap_err();
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_server_that_asks_who_connects_is_shown_a_certificate() {
    let authority = Authority::new();
    let server = Server::start(&authority, true, false).await;
    let broker = server.broker(&authority).connect_timeout(Duration::from_secs(3));
    assert!(broker.connect().await.is_err(), "no certificate is shown");
    let (certificate, key) = authority.signs(ExtendedKeyUsagePurpose::ClientAuth);
    works(&broker.client_certificate(certificate, key)).await.unwrap();
}

#[tokio::test]
async fn users_are_named_by_the_url_or_by_a_setting() {
    let authority = Authority::new();
    let server = Server::start(&authority, false, true).await;
    let error = server.broker(&authority).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let wrong = server.broker(&authority).credentials("orders", "guess");
    let error = wrong.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains("guess"), "{error}");
    works(&server.broker(&authority).credentials("orders", "se:cret@1"))
        .await
        .unwrap();
    let url = format!("mqtts://orders:se%3Acret%401@localhost:{}", server.port);
    works(&MqttBroker::new(url).trusted_certificates(authority.0.pem()))
        .await
        .unwrap();
}

#[test]
fn what_is_wrong_is_told_before_anything_connects() {
    let told = |broker: &MqttBroker| broker.check().unwrap_err().to_string();
    let plain = MqttBroker::new("mqtt://host").trusted_certificates("x");
    assert!(told(&plain).contains("mqtts://"));
    let none = MqttBroker::new("mqtts://host").trusted_certificates("no certificate");
    assert!(told(&none).contains("PEM"), "{}", told(&none));
    assert!(told(&MqttBroker::new("wss://host")).contains("websockets"));
}
