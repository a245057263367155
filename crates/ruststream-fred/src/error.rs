//! What fred and the server say, in the words of the transport.

use ruststream::transport::{ErrorKind, TransportError};

use crate::topology::Node;

/// Why a call failed, and what to do about it.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) text: String,
    pub(crate) sign: Sign,
    cause: Option<fred::error::Error>,
}

/// What a failure tells the code around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sign {
    /// The link is of no use any more: the next call makes a new one.
    LinkLost,
    /// The command did not run: its keys are served elsewhere.
    Elsewhere,
    /// The command did not run: this key is being moved, and this node has it already.
    Ask(Node),
    /// The consumer group, or its stream, is not there.
    NoGroup,
    /// The consumer group is there already.
    GroupExists,
    /// The script has to be sent again.
    NoScript,
    /// Nothing in particular.
    None,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            sign: Sign::None,
            cause: None,
        }
    }

    pub(crate) fn link_lost(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            sign: Sign::LinkLost,
            ..Self::new(kind, text)
        }
    }

    /// An answer that no version of the server gives to what was asked.
    pub(crate) fn strange(what: &str) -> Self {
        Self::new(
            ErrorKind::Incompatible,
            format!("the server answered to {what} with something else than Redis 7 and Valkey do"),
        )
    }

    /// What fred says of a link or of a command.
    pub(crate) fn from_fred(error: fred::error::Error, node: &Node) -> Self {
        use fred::error::ErrorKind as Kind;

        if let Some(failure) = Self::from_known_text(error.details(), node) {
            return failure;
        }
        let (kind, text) = match error.kind() {
            Kind::Auth => (
                ErrorKind::Denied,
                format!("{node} refused the credentials: set a user and a password that it knows ({error})"),
            ),
            Kind::Timeout => (ErrorKind::Timeout, format!("{node} did not answer in time ({error})")),
            Kind::Url | Kind::Config => (
                ErrorKind::Invalid,
                format!("the settings of the broker cannot be used: {error}"),
            ),
            _ => (
                ErrorKind::Unavailable,
                format!("the link to {node} broke, or could not be made ({error}); it is made again"),
            ),
        };
        Self {
            kind,
            text,
            sign: Sign::LinkLost,
            cause: Some(error),
        }
    }

    /// What the server says.
    pub(crate) fn from_server(text: &str, node: &Node) -> Self {
        Self::from_known_text(text, node).unwrap_or_else(|| {
            Self::new(
                ErrorKind::Refused,
                format!("{node} refused a command: {}", of_script(text)),
            )
        })
    }

    /// The error words of Redis, which stand first in the text; see <https://redis.io/docs/latest/develop/reference/protocol-spec/>.
    fn from_known_text(text: &str, node: &Node) -> Option<Self> {
        let text = of_script(text);
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let said = |kind, advice: &str| Self::new(kind, format!("{node} says {text:?}: {advice}"));
        let signed = |kind, sign, advice: &str| Self {
            sign,
            ..said(kind, advice)
        };
        let failure = match word {
            "MOVED" => signed(
                ErrorKind::Unavailable,
                Sign::Elsewhere,
                "the slot is asked for elsewhere",
            ),
            "ASK" => {
                let target = rest.split_once(' ').and_then(|(_, target)| Node::parse(target));
                signed(
                    ErrorKind::Unavailable,
                    target.map_or(Sign::Elsewhere, Sign::Ask),
                    "the slot is on its way to another node",
                )
            }
            "READONLY" => signed(
                ErrorKind::Unavailable,
                Sign::Elsewhere,
                "it is a replica now; its primary is looked for",
            ),
            "NOGROUP" => signed(
                ErrorKind::Unavailable,
                Sign::NoGroup,
                "the consumer group is gone, and is made again",
            ),
            "BUSYGROUP" => signed(ErrorKind::Refused, Sign::GroupExists, "the consumer group is there"),
            "NOSCRIPT" => signed(ErrorKind::Unavailable, Sign::NoScript, "the script is sent again"),
            "LOADING" | "BUSY" | "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" | "NOREPLICAS" | "UNBLOCKED"
            | "CROSSSLOT" => {
                if word == "CROSSSLOT" {
                    said(
                        ErrorKind::Invalid,
                        "keys that are used together need one hash tag: name them {tag}one and {tag}two",
                    )
                } else {
                    said(ErrorKind::Busy, "the same call may succeed soon")
                }
            }
            "OOM" => said(
                ErrorKind::Busy,
                "its memory is full: raise `maxmemory`, or let streams be trimmed with `.retention(..)`",
            ),
            "MISCONF" => said(
                ErrorKind::Busy,
                "it cannot write to its disk: make room, or look into its log",
            ),
            "WRONGTYPE" => said(
                ErrorKind::Incompatible,
                "the key of that name holds another type: choose another name, or delete the key",
            ),
            "NOAUTH" | "WRONGPASS" => said(
                ErrorKind::Denied,
                "set a user and a password that it knows with `.credentials(..)`",
            ),
            "NOPERM" => said(
                ErrorKind::Denied,
                "give the user the right to run this command on these keys (ACL SETUSER)",
            ),
            "EXECABORT" => said(ErrorKind::Refused, "a command of the transaction is wrong"),
            "ERR" if rest.starts_with("unknown command") || rest.starts_with("Unknown") => said(
                ErrorKind::Incompatible,
                "the server is too old: it takes Redis 7.0, Valkey 7.2 or newer",
            ),
            "ERR" if rest.starts_with("invalid password") || rest.starts_with("Client sent AUTH") => said(
                ErrorKind::Denied,
                "set a user and a password that it knows with `.credentials(..)`",
            ),
            _ => return None,
        };
        Some(failure)
    }

    pub(crate) fn is_link_lost(&self) -> bool {
        self.sign == Sign::LinkLost
    }
}

impl From<Failure> for TransportError {
    fn from(failure: Failure) -> Self {
        let error = Self::new(failure.kind, failure.text);
        match failure.cause {
            Some(cause) => error.with_cause(cause),
            None => error,
        }
    }
}

/// What a script ran into, without the frame that some versions put around it.
fn of_script(text: &str) -> &str {
    text.strip_prefix("ERR Error running script")
        .and_then(|rest| rest.rsplit_once(": "))
        .map_or(text, |(_, inner)| inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> Failure {
        Failure::from_server(text, &Node::new("here", 6379))
    }

    #[test]
    fn the_words_of_the_server_say_whether_trying_again_helps() {
        for (text, kind, sign) in [
            ("MOVED 866 10.0.0.1:7001", ErrorKind::Unavailable, Sign::Elsewhere),
            (
                "ASK 866 10.0.0.1:7001",
                ErrorKind::Unavailable,
                Sign::Ask(Node::new("10.0.0.1", 7001)),
            ),
            ("NOGROUP No such key", ErrorKind::Unavailable, Sign::NoGroup),
            ("OOM command not allowed", ErrorKind::Busy, Sign::None),
            ("WRONGPASS invalid", ErrorKind::Denied, Sign::None),
            ("WRONGTYPE Operation", ErrorKind::Incompatible, Sign::None),
            ("ERR something", ErrorKind::Refused, Sign::None),
        ] {
            let failure = failure(text);
            assert_eq!((failure.kind, failure.sign), (kind, sign), "{text}");
        }
    }
}
