//! Every form passes the conformance suite on one server.

#![allow(clippy::unwrap_used, reason = "a test that has no server is a failed test")]

use std::time::Duration;

use ruststream::conformance::{Features, Harness};
use ruststream::transport::{Broker, TransportError};
use ruststream_fred::{Form, RedisBroker, RedisList, RedisSource, RedisStream};
use servers::{Kind, Proxy};

/// The shared server, by way of a proxy of each check's own.
struct Server {
    proxy: Proxy,
    form: Form,
}

impl Server {
    fn new(form: Form) -> Self {
        let url = servers::shared(Kind::Redis).unwrap();
        let port = url.rsplit_once(':').unwrap().1.trim_end_matches('/').parse().unwrap();
        let proxy = Proxy::to(port).unwrap();
        Self { proxy, form }
    }

    fn broker(&self) -> RedisBroker {
        RedisBroker::standalone(format!("redis://127.0.0.1:{}", self.proxy.port())).form(self.form)
    }

    fn leased_source(&self, name: &str, lease: Duration) -> Option<RedisSource> {
        match self.form {
            Form::Stream => Some(RedisStream::new(name).lease(lease).into()),
            Form::List => Some(RedisList::new(name).lease(lease).into()),
            _ => None,
        }
    }

    async fn dead_letters(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let connection = self.broker().connect().await?;
        let letters = connection.dead_letters().list(name, 1000).await?;
        Ok(Some(
            letters.into_iter().map(|letter| letter.payload.to_vec()).collect(),
        ))
    }
}

macro_rules! forms {
    ($($module:ident: $form:expr, $features:expr;)*) => {
        $(
            mod $module {
                use super::*;

                struct Standalone(Server);

                impl Harness for Standalone {
                    type Broker = RedisBroker;

                    async fn start() -> Self {
                        Self(Server::new($form))
                    }

                    fn broker(&self) -> RedisBroker {
                        self.0.broker()
                    }

                    fn features(&self) -> Features {
                        $features
                    }

                    fn leased_source(&self, name: &str, lease: Duration) -> Option<RedisSource> {
                        self.0.leased_source(name, lease)
                    }

                    async fn dead_letters(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
                        self.0.dead_letters(name).await
                    }

                    // What a channel says while its listener is cut off is lost.
                    async fn cut(&self) -> bool {
                        let is_kept = !matches!(self.0.form, Form::Channel | Form::ShardedChannel);
                        if is_kept {
                            self.0.proxy.cut();
                        }
                        is_kept
                    }
                }

                ruststream::conformance::suite!(Standalone);
            }
        )*
    };
}

forms! {
    streams: Form::Stream, Features::default();
    lists: Form::List, Features::default();
    plain_lists: Form::PlainList, Features::default().without_redelivery();
    channels: Form::Channel, Features::default().without_storage().without_sharing().without_places();
    sharded_channels: Form::ShardedChannel, Features::default().without_storage().without_sharing().without_places();
}
