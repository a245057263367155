//! Filters of topics pass the conformance suite, on a real server.

#![allow(clippy::unwrap_used, reason = "a test that has no server is a failed test")]

use std::time::Duration;

use ruststream::conformance::{Features, Harness};
use ruststream_rumqttc::{MqttBroker, MqttVersion, QoS};
use servers::{Kind, Proxy};

/// The server that all tests share, through a proxy that can cut the links.
struct Server<const SHARED: bool, const QUALITY: u8, const OLD: bool = false> {
    proxy: Proxy,
}

impl<const SHARED: bool, const QUALITY: u8, const OLD: bool> Harness for Server<SHARED, QUALITY, OLD> {
    type Broker = MqttBroker;

    async fn start() -> Self {
        let url = servers::shared(Kind::Mosquitto).unwrap();
        let port = url.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap();
        Self {
            proxy: Proxy::to(port).unwrap(),
        }
    }

    fn broker(&self) -> MqttBroker {
        let quality = if QUALITY == 2 {
            QoS::ExactlyOnce
        } else {
            QoS::AtLeastOnce
        };
        let broker = MqttBroker::new(format!("mqtt://127.0.0.1:{}", self.proxy.port())).quality(quality);
        let broker = if OLD {
            broker.version(MqttVersion::V3_1_1)
        } else {
            broker
        };
        if SHARED { broker.group("checks") } else { broker }
    }

    fn features(&self) -> Features {
        // MQTT keeps messages for those who have subscribed, and for them alone.
        let features = Features::default().without_storage();
        if SHARED { features } else { features.without_sharing() }
    }

    async fn cut(&self) -> bool {
        self.proxy.cut();
        // An acknowledgement has no answer: one that is written in the moment of the cut counts as settled, and its message comes again.
        // The suite asks what becomes of receipts after the cut, so both ends are given the time to see it.
        tokio::time::sleep(Duration::from_millis(100)).await;
        true
    }
}

mod topics {
    use super::*;

    ruststream::conformance::suite!(Server<false, 1>);
}

mod groups {
    use super::*;

    ruststream::conformance::suite!(Server<true, 1>);
}

mod exactly_once {
    use super::*;

    ruststream::conformance::suite!(Server<false, 2>);
}

mod old_topics {
    use super::*;

    ruststream::conformance::suite!(Server<false, 1, true>);
}

mod old_groups {
    use super::*;

    ruststream::conformance::suite!(Server<true, 1, true>);
}

mod old_exactly_once {
    use super::*;

    ruststream::conformance::suite!(Server<false, 2, true>);
}
