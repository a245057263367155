//! Packets on the wire, in either version: the crate speaks MQTT 5 inside, and what differs in MQTT 3.1.1 is turned here.
//!
//! MQTT 3.1.1 has no properties. A message that has none, or only the content type of JSON, travels as its payload alone, as clients of
//! other makes write and expect it. Of any other the payload travels in an envelope: [`MAGIC`], then the properties as a PUBLISH of MQTT 5
//! has them (section 3.3.2.3: their length, then each), then the payload. Both versions open envelopes, and put a payload that
//! itself begins as one into one, so that none is taken for what it is not.

use bytes::{BufMut, BytesMut};
use rumqttc::mqttbytes as v4;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, Connect, ConnectReturnCode, Disconnect, Filter, LastWill, Login, Packet, PubAck, PubAckReason, PubComp,
    PubRec, PubRel, Publish, PublishProperties, SubAck, Subscribe, SubscribeProperties, SubscribeReasonCode, UnsubAck,
    Unsubscribe,
};
use rumqttc::v5::mqttbytes::{Error, QoS};
use ruststream::transport::ErrorKind;

use crate::error::Failure;

/// What an envelope begins with: no text does, and no JSON, MessagePack or CBOR of a map.
pub(crate) const MAGIC: &[u8] = b"\0ruststream\x01";

/// The content type that a payload without an envelope is taken to have.
const PLAIN: &str = "application/json";

/// The version of MQTT that is spoken with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MqttVersion {
    /// MQTT 3.1.1. The server keeps sessions as long as it likes, says nothing of what it refuses to publish, and knows no properties:
    /// headers travel in an envelope around the payload.
    V3_1_1,
    /// MQTT 5.
    #[default]
    V5,
}

/// Reads packets of either version, as those of MQTT 5.
pub(crate) struct Reader {
    version: MqttVersion,
    maximum: u32,
    /// What is still to come of a packet that is too large.
    skip: usize,
}

impl Reader {
    pub(crate) fn new(version: MqttVersion, maximum: u32) -> Self {
        Self {
            version,
            maximum,
            skip: 0,
        }
    }

    /// The next whole packet of what has been read.
    pub(crate) fn next(&mut self, inbox: &mut BytesMut) -> Result<Option<Packet>, Error> {
        let read = match self.version {
            MqttVersion::V5 => Packet::read(inbox, Some(self.maximum)),
            MqttVersion::V3_1_1 => self.next_old(inbox),
        };
        match read {
            Ok(Packet::Publish(publish)) => Ok(Some(Packet::Publish(opened(publish)))),
            Ok(packet) => Ok(Some(packet)),
            Err(Error::InsufficientBytes(more)) => {
                // What is skipped is not kept, so no room is made for it.
                if self.skip == 0 {
                    inbox.reserve(more);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn next_old(&mut self, inbox: &mut BytesMut) -> Result<Packet, Error> {
        let gone = self.skip.min(inbox.len());
        let _ = inbox.split_to(gone);
        self.skip -= gone;
        if self.skip > 0 {
            return Err(Error::InsufficientBytes(1));
        }
        let (header, length) = frame(inbox)?;
        if header + length > self.maximum as usize {
            return self.step_over(inbox, header, length);
        }
        // The others are a client's own, and not read with the same care.
        if !matches!(inbox[0] >> 4, 2..=7 | 9 | 11 | 13) {
            return Err(Error::InvalidPacketType(inbox[0] >> 4));
        }
        let packet = v4::v4::Packet::read(inbox, usize::MAX).map_err(|error| error_of(&error))?;
        modern(packet)
    }

    /// The server was not told how large packets may be. One that is too large is told of once, and not acknowledged: the server
    /// keeps it, and the link lives.
    fn step_over(&mut self, inbox: &mut BytesMut, header: usize, length: usize) -> Result<Packet, Error> {
        let topic = inbox.get(header..header + 2).ok_or(Error::InsufficientBytes(2))?;
        let end = header + 2 + usize::from(u16::from_be_bytes([topic[0], topic[1]]));
        let topic = inbox.get(header + 2..end).ok_or(Error::InsufficientBytes(end))?;
        tracing::error!(
            topic = %String::from_utf8_lossy(topic), bytes = length, most = self.maximum,
            "a message is larger than this client takes, and stays with the server; raise `.maximum_packet(..)`, or keep large payloads in \
             a store"
        );
        self.skip = header + length;
        self.next_old(inbox)
    }
}

/// The lengths of a packet's fixed header and of what follows.
fn frame(inbox: &[u8]) -> Result<(usize, usize), Error> {
    let mut length = 0;
    for place in 1..=4 {
        let byte = *inbox.get(place).ok_or(Error::InsufficientBytes(1))?;
        length |= usize::from(byte & 0x7f) << (7 * (place - 1));
        if byte & 0x80 == 0 {
            return Ok((place + 1, length));
        }
    }
    Err(Error::MalformedRemainingLength)
}

fn error_of(error: &v4::Error) -> Error {
    match error {
        v4::Error::InsufficientBytes(more) => Error::InsufficientBytes(*more),
        _ => Error::MalformedPacket,
    }
}

/// A packet of MQTT 3.1.1 that a server sends, as one of MQTT 5.
fn modern(packet: v4::v4::Packet) -> Result<Packet, Error> {
    use v4::v4::Packet as Old;
    Ok(match packet {
        Old::ConnAck(answer) => Packet::ConnAck(ConnAck {
            session_present: answer.session_present,
            code: answer_of(answer.code),
            properties: None,
        }),
        Old::Publish(publish) => Packet::Publish(Publish {
            dup: publish.dup,
            qos: quality_of(publish.qos),
            retain: publish.retain,
            topic: publish.topic.into(),
            pkid: publish.pkid,
            payload: publish.payload,
            properties: None,
        }),
        Old::PubAck(ack) => Packet::PubAck(PubAck {
            pkid: ack.pkid,
            reason: PubAckReason::Success,
            properties: None,
        }),
        Old::PubRec(ack) => Packet::PubRec(PubRec::new(ack.pkid, None)),
        Old::PubRel(release) => Packet::PubRel(PubRel::new(release.pkid, None)),
        Old::PubComp(ack) => Packet::PubComp(PubComp::new(ack.pkid, None)),
        Old::SubAck(ack) => Packet::SubAck(SubAck {
            pkid: ack.pkid,
            return_codes: ack.return_codes.into_iter().map(outcome_of).collect(),
            properties: None,
        }),
        Old::UnsubAck(ack) => Packet::UnsubAck(UnsubAck {
            pkid: ack.pkid,
            reasons: Vec::new(),
            properties: None,
        }),
        Old::PingResp => Packet::PingResp(rumqttc::v5::mqttbytes::v5::PingResp),
        _ => return Err(Error::MalformedPacket),
    })
}

fn answer_of(code: v4::v4::ConnectReturnCode) -> ConnectReturnCode {
    use v4::v4::ConnectReturnCode as Old;
    match code {
        Old::Success => ConnectReturnCode::Success,
        Old::RefusedProtocolVersion => ConnectReturnCode::RefusedProtocolVersion,
        Old::BadClientId => ConnectReturnCode::BadClientId,
        Old::ServiceUnavailable => ConnectReturnCode::ServiceUnavailable,
        Old::BadUserNamePassword => ConnectReturnCode::BadUserNamePassword,
        Old::NotAuthorized => ConnectReturnCode::NotAuthorized,
    }
}

fn outcome_of(code: v4::v4::SubscribeReasonCode) -> SubscribeReasonCode {
    match code {
        v4::v4::SubscribeReasonCode::Success(quality) => SubscribeReasonCode::Success(quality_of(quality)),
        v4::v4::SubscribeReasonCode::Failure => SubscribeReasonCode::Failure,
    }
}

fn quality_of(quality: v4::QoS) -> QoS {
    match quality {
        v4::QoS::AtMostOnce => QoS::AtMostOnce,
        v4::QoS::AtLeastOnce => QoS::AtLeastOnce,
        v4::QoS::ExactlyOnce => QoS::ExactlyOnce,
    }
}

fn old_quality(quality: QoS) -> v4::QoS {
    match quality {
        QoS::AtMostOnce => v4::QoS::AtMostOnce,
        QoS::AtLeastOnce => v4::QoS::AtLeastOnce,
        QoS::ExactlyOnce => v4::QoS::ExactlyOnce,
    }
}

impl MqttVersion {
    /// Its name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V3_1_1 => "MQTT 3.1.1",
            Self::V5 => "MQTT 5",
        }
    }

    /// Writes the greeting. In MQTT 3.1.1, `clean` is also the word for a session that ends with the link.
    pub(crate) fn write_connect(
        self,
        connect: Connect,
        will: Option<LastWill>,
        login: Option<Login>,
        out: &mut BytesMut,
    ) -> Result<(), Failure> {
        let wrong = |error: String| {
            let text = format!("the greeting cannot be written: {error}");
            Failure::new(ErrorKind::Invalid, text)
        };
        if self == Self::V5 {
            let written = Packet::Connect(connect, will, login).write(out, None);
            return written.map(drop).map_err(|error| wrong(error.to_string()));
        }
        let connect = v4::v4::Connect {
            protocol: v4::Protocol::V4,
            keep_alive: connect.keep_alive,
            client_id: connect.client_id,
            clean_session: connect.clean_start,
            last_will: will.map(|will| v4::v4::LastWill {
                topic: String::from_utf8_lossy(&will.topic).into_owned(),
                message: will.message,
                qos: old_quality(will.qos),
                retain: will.retain,
            }),
            login: login.map(|login| v4::v4::Login {
                username: login.username,
                password: login.password,
            }),
        };
        connect.write(out).map(drop).map_err(|error| wrong(error.to_string()))
    }

    pub(crate) fn write_disconnect(self, farewell: &Disconnect, out: &mut BytesMut) {
        // Writing into memory does not fail.
        let _ = match self {
            Self::V5 => farewell.write(out).ok(),
            Self::V3_1_1 => v4::v4::Disconnect.write(out).ok(),
        };
    }

    pub(crate) fn write_subscribe(self, packet_id: u16, number: u32, filter: Filter, out: &mut BytesMut) {
        if self == Self::V3_1_1 {
            let mut subscribe = v4::v4::Subscribe::new(filter.path, old_quality(filter.qos));
            subscribe.pkid = packet_id;
            let _ = subscribe.write(out);
            return;
        }
        let properties = SubscribeProperties {
            id: usize::try_from(number).ok(),
            user_properties: Vec::new(),
        };
        let mut subscribe = Subscribe::new(filter, Some(properties));
        subscribe.pkid = packet_id;
        let _ = subscribe.write(out);
    }

    pub(crate) fn write_unsubscribe(self, packet_id: u16, path: String, out: &mut BytesMut) {
        if self == Self::V3_1_1 {
            let mut unsubscribe = v4::v4::Unsubscribe::new(path);
            unsubscribe.pkid = packet_id;
            let _ = unsubscribe.write(out);
        } else {
            let mut unsubscribe = Unsubscribe::new(path, None);
            unsubscribe.pkid = packet_id;
            let _ = unsubscribe.write(out);
        }
    }

    pub(crate) fn write_publish(self, publish: &Publish, out: &mut BytesMut) -> Result<(), Error> {
        if self == Self::V5 {
            return publish.write(out).map(drop);
        }
        let mut flags = 0x30 | u8::from(publish.retain) | ((publish.qos as u8) << 1);
        if publish.dup && publish.qos != QoS::AtMostOnce {
            flags |= 0x08;
        }
        out.put_u8(flags);
        let number = if publish.qos == QoS::AtMostOnce { 0 } else { 2 };
        write_length(2 + publish.topic.len() + number + publish.payload.len(), out)?;
        out.put_u16(publish.topic.len() as u16);
        out.put_slice(&publish.topic);
        if number > 0 {
            out.put_u16(publish.pkid);
        }
        out.put_slice(&publish.payload);
        Ok(())
    }

    /// Makes a message fit for the version: where it has to, its payload goes into an envelope.
    pub(crate) fn sealed(self, mut publish: Publish) -> Result<Publish, Error> {
        let is_ambiguous = publish.payload.starts_with(MAGIC);
        let is_plain = match (self, &publish.properties) {
            (Self::V5, _) | (_, None) => true,
            (Self::V3_1_1, Some(properties)) => *properties == plain(),
        };
        if is_plain && !is_ambiguous {
            if self == Self::V3_1_1 {
                publish.properties = None;
            }
            return Ok(publish);
        }
        let inner = Publish {
            properties: publish.properties.take(),
            payload: std::mem::take(&mut publish.payload),
            ..Publish::default()
        };
        let mut packet = BytesMut::new();
        inner.write(&mut packet)?;
        // Behind the fixed header stands the topic, which is empty.
        let (header, _) = frame(&packet)?;
        let mut sealed = BytesMut::with_capacity(MAGIC.len() + packet.len());
        sealed.put_slice(MAGIC);
        sealed.put_slice(&packet[header + 2..]);
        publish.payload = sealed.freeze();
        Ok(publish)
    }
}

fn plain() -> PublishProperties {
    PublishProperties {
        content_type: Some(PLAIN.to_owned()),
        ..PublishProperties::default()
    }
}

/// Takes a message out of its envelope, if it is in one.
fn opened(mut publish: Publish) -> Publish {
    let Some(content) = publish.payload.strip_prefix(MAGIC) else {
        return publish;
    };
    let read = || -> Result<Publish, Error> {
        let mut packet = BytesMut::with_capacity(content.len() + 8);
        packet.put_u8(0x30);
        write_length(content.len() + 2, &mut packet)?;
        packet.put_u16(0);
        packet.put_slice(content);
        match Packet::read(&mut packet, None)? {
            Packet::Publish(inner) => Ok(inner),
            _ => Err(Error::MalformedPacket),
        }
    };
    // What only looks like an envelope is a payload.
    if let Ok(inner) = read() {
        let known = publish
            .properties
            .take()
            .map(|properties| properties.subscription_identifiers);
        publish.payload = inner.payload;
        publish.properties = inner.properties;
        if let Some(known) = known {
            publish.properties.get_or_insert_default().subscription_identifiers = known;
        }
    }
    publish
}

fn write_length(length: usize, out: &mut BytesMut) -> Result<(), Error> {
    if length > 0x0fff_ffff {
        return Err(Error::PayloadTooLong);
    }
    let mut left = length;
    loop {
        let byte = (left & 0x7f) as u8;
        left >>= 7;
        out.put_u8(if left > 0 { byte | 0x80 } else { byte });
        if left == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn message(payload: &'static [u8], properties: Option<PublishProperties>) -> Publish {
        Publish {
            topic: Bytes::from_static(b"a"),
            payload: Bytes::from_static(payload),
            properties,
            ..Publish::default()
        }
    }

    fn travelled(version: MqttVersion, publish: Publish) -> (Publish, Publish) {
        let sealed = version.sealed(publish).unwrap();
        let mut wire = BytesMut::new();
        version.write_publish(&sealed, &mut wire).unwrap();
        let mut reader = Reader::new(version, 1 << 20);
        match reader.next(&mut wire).unwrap() {
            Some(Packet::Publish(publish)) => (sealed, publish),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn properties_survive_in_both_versions() {
        let mut properties = plain();
        properties.user_properties.push(("tenant".into(), "7".into()));
        properties.correlation_data = Some(Bytes::from_static(b"\0\xff"));
        for version in [MqttVersion::V3_1_1, MqttVersion::V5] {
            let (_, publish) = travelled(version, message(b"{}", Some(properties.clone())));
            assert_eq!(publish.properties.as_ref(), Some(&properties));
            assert_eq!(publish.payload, b"{}"[..]);
        }
    }

    #[test]
    fn json_without_other_headers_travels_as_it_is() {
        let (sealed, publish) = travelled(MqttVersion::V3_1_1, message(b"{}", Some(plain())));
        assert_eq!((&sealed.payload[..], sealed.properties), (&b"{}"[..], None));
        assert_eq!(publish.properties, None);
    }

    #[test]
    fn a_payload_that_begins_as_an_envelope_is_not_taken_for_one() {
        for version in [MqttVersion::V3_1_1, MqttVersion::V5] {
            for payload in [&b"\0ruststream\x01"[..], b"\0ruststream\x01\0rest"] {
                let (_, publish) = travelled(version, message(payload, None));
                assert_eq!(publish.payload, payload);
            }
        }
        let broken = opened(message(b"\0ruststream\x01\xff\xff\xff\xff\xff", None));
        assert_eq!(broken.payload, b"\0ruststream\x01\xff\xff\xff\xff\xff"[..]);
    }

    #[test]
    fn what_is_too_large_is_stepped_over_piece_by_piece() {
        let mut wire = BytesMut::new();
        let (old, large) = (MqttVersion::V3_1_1, vec![7; 1000]);
        let mut publish = message(b"", None);
        publish.payload = large.into();
        old.write_publish(&publish, &mut wire).unwrap();
        old.write_publish(&message(b"small", None), &mut wire).unwrap();
        let mut reader = Reader::new(old, 100);
        let mut inbox = BytesMut::new();
        let mut found = Vec::new();
        for byte in wire {
            inbox.put_u8(byte);
            found.extend(reader.next(&mut inbox).unwrap());
            assert!(inbox.len() < 20, "what is skipped is kept");
        }
        assert!(matches!(&found[..], [Packet::Publish(publish)] if publish.payload == b"small"[..]));
    }
}
