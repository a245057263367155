//! What the server's errors mean; see <https://www.postgresql.org/docs/current/errcodes-appendix.html>.

use ruststream::transport::ErrorKind;

use crate::server::Judgement;

pub(super) fn judge(error: &sqlx::Error) -> Judgement {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    let Some(code) = code else {
        let text = match error {
            sqlx::Error::Configuration(cause) => {
                return wrong(format!("the settings of the connection are wrong: {cause}"));
            }
            sqlx::Error::Tls(cause) => return wrong(format!("no encrypted connection can be made: {cause}")),
            sqlx::Error::Io(io) => format!("the connection broke ({io}); another is made on the next call"),
            other => format!("the connection broke ({other}); another is made on the next call"),
        };
        return Judgement {
            kind: ErrorKind::Unavailable,
            text,
            lost: true,
            again: false,
        };
    };
    let (kind, advice, lost) = match (&code[..2], &*code) {
        // A serialization failure, a deadlock.
        (_, "40001" | "40P01") => {
            return Judgement {
                kind: ErrorKind::Busy,
                text: error.to_string(),
                lost: false,
                again: true,
            };
        }
        (_, "55P03") => (ErrorKind::Busy, "someone holds a row or the table for long", false),
        (_, "57014") => (ErrorKind::Timeout, "the server's own statement_timeout ended it", false),
        (_, "53100") => (
            ErrorKind::Busy,
            "the disk of the server is full; make room and it works again",
            false,
        ),
        (_, "53300") => (
            ErrorKind::Busy,
            "the server has no connection left: raise its max_connections, or connect fewer processes",
            true,
        ),
        ("53", _) => (ErrorKind::Busy, "the server lacks memory or other resources", true),
        ("08" | "57" | "58" | "XX", _) => (
            ErrorKind::Unavailable,
            "another connection is made on the next call",
            true,
        ),
        (_, "25006") => (
            ErrorKind::Unavailable,
            "this server only reads: it is a standby, or was one; another connection is made on the next call",
            true,
        ),
        ("28", _) => (
            ErrorKind::Denied,
            "the server refuses this user: look at the password and pg_hba.conf",
            true,
        ),
        (_, "42501") => (
            ErrorKind::Denied,
            "this user lacks the right: grant it, or make the tables yourself and set `.migrate(false)`",
            false,
        ),
        (_, "3D000" | "3F000") => (ErrorKind::Invalid, "create it first, or name another", true),
        // The table was dropped or changed: connecting anew makes it again, or says why it cannot.
        ("42", _) => (
            ErrorKind::Incompatible,
            "the tables are not as this version made them",
            false,
        ),
        (_, "54000") => (ErrorKind::TooLarge, "a value is larger than the server takes", false),
        _ => (ErrorKind::Refused, "the server refused a row", false),
    };
    Judgement {
        kind,
        text: format!("{error} ({advice})"),
        lost,
        again: false,
    }
}

fn wrong(text: String) -> Judgement {
    Judgement {
        kind: ErrorKind::Invalid,
        text,
        lost: true,
        again: false,
    }
}
