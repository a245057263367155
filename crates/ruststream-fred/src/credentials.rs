//! Credentials that change while the service runs.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fred::types::config::Config;
use ruststream::transport::{ErrorKind, TransportError};
use tokio::time::timeout;

use crate::error::Failure;

/// Gives the credentials for the next link to a server: a token that is renewed, a secret that is rotated.
///
/// # Examples
///
/// ```
/// use ruststream::transport::TransportError;
/// use ruststream_fred::{CredentialProvider, RedisBroker};
///
/// struct Tokens;
///
/// impl CredentialProvider for Tokens {
///     async fn credentials(&self) -> Result<(String, String), TransportError> {
///         Ok(("orders".to_owned(), "the token of this hour".to_owned()))
///     }
/// }
///
/// let broker = RedisBroker::standalone("redis://localhost").credential_provider(Tokens);
/// ```
pub trait CredentialProvider: Send + Sync + 'static {
    /// The user and the password of the server's ACL.
    ///
    /// # Errors
    ///
    /// The link is not made, and the error told; after a transient one it is tried again.
    ///
    /// # Cancel safety
    ///
    /// The call is dropped when the deadline of a link passes.
    fn credentials(&self) -> impl Future<Output = Result<(String, String), TransportError>> + Send;
}

type Asked<'a> = Pin<Box<dyn Future<Output = Result<(String, String), TransportError>> + Send + 'a>>;

trait Erased: Send + Sync {
    fn ask(&self) -> Asked<'_>;
}

impl<P: CredentialProvider> Erased for P {
    fn ask(&self) -> Asked<'_> {
        Box::pin(self.credentials())
    }
}

/// Any provider.
#[derive(Clone)]
pub(crate) struct Provider(Arc<dyn Erased>);

impl Provider {
    pub(crate) fn new(provider: impl CredentialProvider) -> Self {
        Self(Arc::new(provider))
    }

    /// The settings with credentials of now.
    pub(crate) async fn apply(&self, config: &Config, most: Duration) -> Result<Config, Failure> {
        let (user, password) = match timeout(most, self.0.ask()).await {
            Ok(Ok(pair)) => pair,
            Ok(Err(error)) => {
                return Err(Failure::link_lost(
                    error.kind(),
                    format!("the provider of credentials gave none: {error}"),
                ));
            }
            Err(_) => {
                return Err(Failure::link_lost(
                    ErrorKind::Timeout,
                    format!("the provider of credentials did not answer within {most:?}"),
                ));
            }
        };
        Ok(Config {
            username: Some(user),
            password: Some(password),
            ..config.clone()
        })
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}
