//! What lapin and the server say, in the words of the transport.

use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use ruststream::transport::{ErrorKind, TransportError};

/// Says what `error` means for `what` ("queue `orders` on rabbitmq localhost:5672/"): which kind it is, and what to do.
///
/// The server's codes are those of AMQP 0-9-1, <https://www.rabbitmq.com/amqp-0-9-1-reference.html#constants>; where one code
/// stands for several troubles, the server's text tells them apart.
pub(crate) fn from_lapin(error: lapin::Error, what: &str) -> TransportError {
    let (kind, text) = match error.kind() {
        lapin::ErrorKind::ProtocolError(amqp) => from_server(amqp.kind(), amqp.get_message().as_str(), what),
        lapin::ErrorKind::ParsingError(_) => (
            ErrorKind::Incompatible,
            format!(
                "{what}: the server sent what the client cannot read ({error}); a message with a header name or a property that is \
                 not UTF-8 does that: take it off the queue with another tool"
            ),
        ),
        lapin::ErrorKind::InvalidProtocolVersion(_) => (
            ErrorKind::Incompatible,
            format!("{what}: {error}; a server for AMQP 0-9-1 is needed"),
        ),
        lapin::ErrorKind::AuthProviderError(_) => (ErrorKind::Denied, format!("{what}: {error}")),
        lapin::ErrorKind::SerialisationError(_) => (
            ErrorKind::Invalid,
            format!("{what}: the message cannot be written as AMQP frames: {error}"),
        ),
        _ => (ErrorKind::Unavailable, format!("{what}: the link broke ({error})")),
    };
    TransportError::new(kind, text).with_cause(error)
}

fn from_server(kind: &AMQPErrorKind, said: &str, what: &str) -> (ErrorKind, String) {
    match kind {
        AMQPErrorKind::Soft(soft) => match soft {
            AMQPSoftError::PRECONDITIONFAILED => precondition(said, what),
            AMQPSoftError::ACCESSREFUSED => (
                ErrorKind::Denied,
                format!("{what}: the server refuses it: {said}; give the user that right, or use another user"),
            ),
            // A queue whose node is down in a cluster is not found either, and comes back.
            AMQPSoftError::NOTFOUND if said.contains("home node") || said.contains("is down") => {
                (ErrorKind::Unavailable, format!("{what}: {said}"))
            }
            AMQPSoftError::NOTFOUND => (
                ErrorKind::Unroutable,
                format!("{what}: {said}; declare it, or correct the name"),
            ),
            // The connection that held it may be one that is lost already, of which the server does not know yet.
            AMQPSoftError::RESOURCELOCKED => (
                ErrorKind::Busy,
                format!("{what}: another connection has it for itself: {said}"),
            ),
            AMQPSoftError::CONTENTTOOLARGE => (ErrorKind::TooLarge, format!("{what}: {said}")),
            AMQPSoftError::NOROUTE | AMQPSoftError::NOCONSUMERS => (ErrorKind::Unroutable, format!("{what}: {said}")),
        },
        AMQPErrorKind::Hard(hard) => match hard {
            AMQPHardError::NOTALLOWED if !said.contains("is down") => (
                ErrorKind::Denied,
                format!("{what}: the server does not allow it: {said}"),
            ),
            AMQPHardError::INVALIDPATH => (ErrorKind::Invalid, format!("{what}: {said}; correct the virtual host")),
            AMQPHardError::NOTIMPLEMENTED => (ErrorKind::Invalid, format!("{what}: the server cannot do that: {said}")),
            AMQPHardError::RESOURCEERROR => (ErrorKind::Busy, format!("{what}: {said}")),
            _ => (ErrorKind::Unavailable, format!("{what}: the server ended it: {said}")),
        },
    }
}

/// One code for a wrong argument, a message too large, a handler too slow and a tag unknown.
fn precondition(said: &str, what: &str) -> (ErrorKind, String) {
    if let Some(mismatch) = Mismatch::read(said) {
        return (ErrorKind::Incompatible, mismatch.text(what));
    }
    if said.contains("max size") {
        return (ErrorKind::TooLarge, format!("{what}: {said}"));
    }
    if said.contains("timed out") {
        let text = format!(
            "{what}: a message was not settled in the time that the server grants; it is delivered again. Raise `consumer_timeout` \
             on the server above what a handler may take ({said})"
        );
        return (ErrorKind::Unavailable, text);
    }
    if said.contains("unknown delivery tag") {
        return (ErrorKind::Unavailable, format!("{what}: {said}"));
    }
    (
        ErrorKind::Invalid,
        format!("{what}: the server takes it not so: {said}"),
    )
}

/// The server's word that something is there already, declared in another way:
/// `inequivalent arg 'x-max-length' for queue 'orders' in vhost '/': received none but current is the value '5' of type 'long'`.
struct Mismatch<'a> {
    argument: &'a str,
    received: &'a str,
    current: &'a str,
}

impl<'a> Mismatch<'a> {
    fn read(said: &'a str) -> Option<Self> {
        let (_, rest) = said.split_once("inequivalent arg '")?;
        let (argument, rest) = rest.split_once('\'')?;
        let (_, rest) = rest.split_once("received ")?;
        let (received, current) = rest.split_once(" but current is ")?;
        Some(Self {
            argument,
            received,
            current,
        })
    }

    fn text(&self, what: &str) -> String {
        let Self {
            argument,
            received,
            current,
        } = self;
        format!(
            "{what} is there already with another `{argument}`: here it is {received}, there it is {current}; set it here as it is \
             there, delete it there, or read it as it is with `Declaration::Passive`"
        )
    }
}

/// A passed deadline.
pub(crate) fn late(what: &str, deadline: std::time::Duration) -> TransportError {
    TransportError::new(
        ErrorKind::Timeout,
        format!("{what}: no answer within {deadline:?}; the link is made anew"),
    )
}

/// The connection was closed by this process.
pub(crate) fn closed(label: &str) -> TransportError {
    TransportError::new(
        ErrorKind::Closed,
        format!("the connection to {label} was closed by this process"),
    )
}

/// As much of an error's text as is kept with a dead letter: all headers of a message share one frame, of 128 KiB by default.
pub(crate) fn within_frame(text: &str) -> &str {
    const MOST: usize = 16 * 1024;
    if text.len() <= MOST {
        return text;
    }
    let mut end = MOST;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The same error once more: to each message of a group its own.
pub(crate) fn again(error: &TransportError) -> TransportError {
    TransportError::new(error.kind(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_names_the_argument_and_both_values() {
        let said = "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'orders' in vhost '/': received none but \
                    current is the value '5' of type 'signedint'";
        let (kind, text) = precondition(said, "queue `orders`");
        assert_eq!(kind, ErrorKind::Incompatible);
        assert!(
            text.contains("`x-max-length`: here it is none, there it is the value '5'"),
            "{text}"
        );
    }

    #[test]
    fn one_code_tells_passing_and_lasting_trouble_apart() {
        let kind = |said| precondition(said, "x").0;
        assert_eq!(
            kind("PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 1000 ms"),
            ErrorKind::Unavailable
        );
        assert_eq!(
            kind("PRECONDITION_FAILED - message size 9 is larger than configured max size 8"),
            ErrorKind::TooLarge
        );
        assert_eq!(
            kind("PRECONDITION_FAILED - unknown delivery tag 7"),
            ErrorKind::Unavailable
        );
        assert_eq!(
            kind("PRECONDITION_FAILED - invalid arg 'x-max-length' for queue 'q'"),
            ErrorKind::Invalid
        );
    }
}
