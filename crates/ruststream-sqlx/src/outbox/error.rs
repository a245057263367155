//! What databases say, in the words of the transport.

use ruststream::transport::{ErrorKind, TransportError};
use sqlx::Error;

pub(super) fn fault(error: Error) -> TransportError {
    let (kind, advice) = judge(&error);
    TransportError::new(kind, format!("the outbox's database: {error} ({advice})")).with_cause(error)
}

fn judge(error: &Error) -> (ErrorKind, &'static str) {
    let Some(refusal) = error.as_database_error() else {
        return match error {
            Error::Configuration(_) | Error::Tls(_) => (ErrorKind::Invalid, "look at the settings of the pool"),
            Error::PoolTimedOut => (
                ErrorKind::Busy,
                "the pool has no connection left: make it larger, or its transactions shorter",
            ),
            Error::PoolClosed => (ErrorKind::Closed, "the pool was closed by this process"),
            Error::ColumnDecode { .. } | Error::ColumnNotFound(_) | Error::Decode(_) => {
                (ErrorKind::Incompatible, "the tables are not as this version made them")
            }
            Error::Encode(_) => (ErrorKind::Invalid, "a value does not fit its column"),
            _ => (ErrorKind::Unavailable, "another connection is made on the next call"),
        };
    };
    let code = refusal.code();
    let code = code.as_deref().unwrap_or_default();
    let text = refusal.message();
    match code {
        // A deadlock, a serialization failure, a lock waited for too long; SQLite's busy and locked, with their extended codes.
        "40001" | "40P01" | "55P03" | "1205" | "1213" | "5" | "6" | "261" | "517" | "262" | "773" => {
            (ErrorKind::Busy, "others hold what it needs; it is tried again")
        }
        "42P01" | "42S02" | "1146" | "42703" | "42S22" => {
            (ErrorKind::Incompatible, "make the tables by `Outbox::prepare`")
        }
        _ if text.starts_with("no such ") || text.contains("has no column") => {
            (ErrorKind::Incompatible, "make the tables by `Outbox::prepare`")
        }
        "22001" | "1406" | "1153" | "54000" | "18" => {
            (ErrorKind::TooLarge, "a value is larger than the database takes")
        }
        "42501" | "42000" | "8" | "23" => (ErrorKind::Denied, "look at the rights of this user"),
        _ if code.starts_with("08") || code.starts_with("57") || code.starts_with("58") || code.starts_with("XX") => {
            (ErrorKind::Unavailable, "another connection is made on the next call")
        }
        _ if code.starts_with("53") || code == "1040" || code == "13" => {
            (ErrorKind::Busy, "the server lacks resources")
        }
        _ => (ErrorKind::Refused, "the database refused it"),
    }
}
