//! Links over TLS: whom to trust, and what to show of oneself.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Certificates, all in PEM.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    /// Those that are trusted besides the system's.
    pub(crate) trusted: Option<Vec<u8>>,
    /// What this process shows of itself: certificate and key.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Whether anything was said.
    pub(crate) fn is_set(&self) -> bool {
        self.trusted.is_some() || self.identity.is_some()
    }

    /// What makes links. The provider is named, since a program may have several.
    pub(crate) fn connector(&self) -> Result<TlsConnector, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be used: {error}"))?
            .with_root_certificates(self.roots()?);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate, "the certificate of this client")?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| format!("the key of this client cannot be read: {error}; give it in PEM"))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| format!("the certificate of this client cannot be used with its key: {error}"))?
            }
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        // Those of the system that cannot be read are not needed where others are trusted.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(trusted) = &self.trusted {
            for certificate in certificates(trusted, "a trusted certificate")? {
                roots
                    .add(certificate)
                    .map_err(|error| format!("a trusted certificate cannot be used: {error}"))?;
            }
        }
        if roots.is_empty() {
            return Err(
                "no certificate is trusted: the system has none; give those of the server's authority by \
                        `.trusted_certificates(..)`"
                    .to_owned(),
            );
        }
        Ok(roots)
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(format!("{what} is not there: the text has none in PEM")),
        Err(error) => Err(format!("{what} cannot be read: {error}; give it in PEM")),
    }
}
