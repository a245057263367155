//! What the server says, in the words of the transport.
//!
//! The codes are those of MQTT 5.0, section 2.4.

use rumqttc::v5::mqttbytes::v5::{
    ConnectReturnCode, DisconnectReasonCode, PubAckReason, PubRecReason, SubscribeReasonCode,
};
use ruststream::transport::{ErrorKind, TransportError};

/// Why something did not happen: kept where several have to be told.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, text }
    }

    pub(crate) fn is_transient(&self) -> bool {
        TransportError::from(self.clone()).is_transient()
    }
}

impl From<Failure> for TransportError {
    fn from(failure: Failure) -> Self {
        TransportError::new(failure.kind, failure.text)
    }
}

pub(crate) fn refused_link(label: &str, code: ConnectReturnCode) -> Failure {
    use ConnectReturnCode as Code;
    let (kind, fix) = match code {
        Code::BadUserNamePassword | Code::NotAuthorized | Code::Banned | Code::BadAuthenticationMethod => (
            ErrorKind::Denied,
            "correct user and password, or give the user that right",
        ),
        Code::BadClientId | Code::ClientIdentifierNotValid => (ErrorKind::Invalid, "choose another client id"),
        Code::RefusedProtocolVersion | Code::UnsupportedProtocolVersion => {
            (ErrorKind::Incompatible, "a server for MQTT 5 is needed")
        }
        Code::TopicNameInvalid | Code::PayloadFormatInvalid | Code::RetainNotSupported | Code::QoSNotSupported => {
            (ErrorKind::Invalid, "correct the last will")
        }
        Code::UseAnotherServer | Code::ServerMoved => (ErrorKind::Invalid, "correct the URL"),
        _ => (ErrorKind::Unavailable, "trying again"),
    };
    Failure::new(kind, format!("{label} refuses the link ({code:?}): {fix}"))
}

pub(crate) fn ended_link(label: &str, code: DisconnectReasonCode) -> Failure {
    let fix = match code {
        DisconnectReasonCode::SessionTakenOver => {
            ": another client has connected with the same client id; give each its own, or leave client ids out"
        }
        DisconnectReasonCode::PacketTooLarge => ": a packet was larger than the server takes",
        DisconnectReasonCode::NotAuthorized => ": the user has not the right to what was asked",
        _ => "",
    };
    Failure::new(
        ErrorKind::Unavailable,
        format!("{label} ended the link ({code:?}){fix}"),
    )
}

pub(crate) fn refused_subscription(what: &str, code: SubscribeReasonCode) -> Failure {
    use SubscribeReasonCode as Code;
    let (kind, fix) = match code {
        Code::NotAuthorized => (ErrorKind::Denied, "give the user the right to read it"),
        Code::TopicFilterInvalid => (ErrorKind::Invalid, "correct the filter"),
        Code::SharedSubscriptionsNotSupported => (
            ErrorKind::Invalid,
            "the server has no shared subscriptions: leave the group out",
        ),
        Code::WildcardSubscriptionsNotSupported => (ErrorKind::Invalid, "the server has no wildcards: name the topics"),
        Code::QuotaExceeded => (ErrorKind::Busy, "the server has too many subscriptions"),
        Code::PkidInUse => (ErrorKind::Busy, "trying again"),
        // MQTT 3.1.1 knows no other refusal, and servers that came from it say this where rights are missing.
        Code::Failure | Code::Unspecified => (ErrorKind::Denied, "look whether the user has the right to read it"),
        _ => (ErrorKind::Invalid, "the server cannot do that"),
    };
    Failure::new(kind, format!("{what} was refused ({code:?}): {fix}"))
}

/// What an acknowledgement says of a publish to `topic`; `None` where the server has it.
pub(crate) fn refused_publish(topic: &str, reason: PubAckReason) -> Option<TransportError> {
    use PubAckReason as Reason;
    let (kind, fix) = match reason {
        // That no one subscribes is no failure: the message is where it was sent to.
        Reason::Success | Reason::NoMatchingSubscribers => return None,
        Reason::NotAuthorized => (ErrorKind::Denied, "give the user the right to publish there"),
        Reason::TopicNameInvalid => (ErrorKind::Invalid, "correct the topic"),
        Reason::PayloadFormatInvalid => (ErrorKind::Invalid, "the payload is not the text that its options say"),
        Reason::QuotaExceeded | Reason::PacketIdentifierInUse => (ErrorKind::Busy, "try again later"),
        Reason::UnspecifiedError | Reason::ImplementationSpecificError => {
            (ErrorKind::Refused, "the server says no more")
        }
    };
    let text = format!("the server refused a message to `{topic}` ({reason:?}): {fix}");
    Some(TransportError::new(kind, text))
}

pub(crate) fn same(reason: PubRecReason) -> PubAckReason {
    match reason {
        PubRecReason::Success => PubAckReason::Success,
        PubRecReason::NoMatchingSubscribers => PubAckReason::NoMatchingSubscribers,
        PubRecReason::UnspecifiedError => PubAckReason::UnspecifiedError,
        PubRecReason::ImplementationSpecificError => PubAckReason::ImplementationSpecificError,
        PubRecReason::NotAuthorized => PubAckReason::NotAuthorized,
        PubRecReason::TopicNameInvalid => PubAckReason::TopicNameInvalid,
        PubRecReason::PacketIdentifierInUse => PubAckReason::PacketIdentifierInUse,
        PubRecReason::QuotaExceeded => PubAckReason::QuotaExceeded,
        PubRecReason::PayloadFormatInvalid => PubAckReason::PayloadFormatInvalid,
    }
}
