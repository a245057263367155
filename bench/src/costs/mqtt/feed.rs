//! What publishes to the services: it writes to a socket what it made once, so that it neither counts nor allocates.

use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use bytes::BytesMut;
use rumqttc::mqttbytes::QoS;
use rumqttc::mqttbytes::v4::{Connect, Publish};

use crate::costs::program::{ROUND, uncounted};

/// A PUBACK of MQTT 3.1.1.
const ACKNOWLEDGEMENT: usize = 4;

pub(super) struct Feed {
    server: TcpStream,
    /// The messages of a round, under the packet ids from 1 on.
    round: BytesMut,
    message: usize,
    answers: Vec<u8>,
}

impl Feed {
    /// A connection of its own, which publishes this at QoS 1.
    pub(super) fn open(port: u16, topic: &str, payload: &str) -> Result<Self, Error> {
        let wrong = |error: rumqttc::mqttbytes::Error| Error::new(ErrorKind::InvalidInput, error.to_string());
        let mut server = TcpStream::connect(("127.0.0.1", port))?;
        server.set_nodelay(true)?;
        let mut greeting = BytesMut::new();
        let mut connect = Connect::new("feed");
        connect.keep_alive = 0;
        connect.write(&mut greeting).map_err(wrong)?;
        server.write_all(&greeting)?;
        server.read_exact(&mut [0; 4])?;
        let mut round = BytesMut::new();
        for number in 1..=ROUND {
            let mut publish = Publish::new(topic, QoS::AtLeastOnce, payload);
            publish.pkid = number as u16;
            publish.write(&mut round).map_err(wrong)?;
        }
        Ok(Self {
            server,
            message: round.len() / ROUND as usize,
            round,
            answers: vec![0; ACKNOWLEDGEMENT * ROUND as usize],
        })
    }

    /// Sends so many messages, and waits until the server has them.
    pub(super) fn send(&mut self, messages: u64) {
        uncounted(|| self.try_send(messages as usize).expect("the server takes messages"));
    }

    fn try_send(&mut self, messages: usize) -> Result<(), Error> {
        self.server.write_all(&self.round[..self.message * messages])?;
        self.server.read_exact(&mut self.answers[..ACKNOWLEDGEMENT * messages])
    }
}
