//! What a link runs over: TCP, or TLS over it.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::settings::Settings;

pub(crate) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Secure(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// What both are.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Stream {
    pub(crate) async fn open(settings: &Settings, host: &str, port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        #[cfg(feature = "tls")]
        if let Some(connector) = &settings.connector {
            let name = tokio_rustls::rustls::pki_types::ServerName::try_from(host.to_owned());
            let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            let stream = connector.connect(name, stream).await?;
            return Ok(Self::Secure(Box::new(stream)));
        }
        #[cfg(not(feature = "tls"))]
        let _ = settings;
        Ok(Self::Plain(stream))
    }

    pub(crate) fn io(&mut self) -> &mut dyn Io {
        match self {
            Self::Plain(stream) => stream,
            #[cfg(feature = "tls")]
            Self::Secure(stream) => stream,
        }
    }
}
