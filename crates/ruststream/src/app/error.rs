//! What can keep an app from starting, running or ending well.

use std::error::Error;
use std::fmt;

type Cause = Box<dyn Error + Send + Sync>;

/// What kept an app from starting, running or ending well.
#[derive(Debug)]
pub struct AppError {
    kind: Kind,
    message: String,
    cause: Option<Cause>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Wiring,
    Broker,
    Hook,
}

impl AppError {
    /// An error with all that is wrong, if something is.
    pub(super) fn of_wiring(problems: &[String]) -> Result<(), Self> {
        let message = match problems {
            [] => return Ok(()),
            [one] => one.clone(),
            many => many.iter().fold(format!("{} problems:", many.len()), |text, problem| {
                text + "\n  - " + problem
            }),
        };
        Err(Self {
            kind: Kind::Wiring,
            message,
            cause: None,
        })
    }

    pub(super) fn broker(message: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self {
            kind: Kind::Broker,
            message: message.into(),
            cause: Some(cause.into()),
        }
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self {
            kind: Kind::Broker,
            message: message.into(),
            cause: None,
        }
    }

    pub(super) fn hook(hook: &'static str, cause: Cause) -> Self {
        Self {
            kind: Kind::Hook,
            message: format!("the hook `{hook}` failed"),
            cause: Some(cause),
        }
    }

    /// True where the app is put together wrongly: [`RustStream::check`](super::RustStream::check) tells without starting.
    pub fn is_wiring(&self) -> bool {
        self.kind == Kind::Wiring
    }

    /// True where a broker could not be reached, refused, or was lost for good.
    pub fn is_broker(&self) -> bool {
        self.kind == Kind::Broker
    }

    /// True where a lifecycle hook failed.
    pub fn is_hook(&self) -> bool {
        self.kind == Kind::Hook
    }
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for AppError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
