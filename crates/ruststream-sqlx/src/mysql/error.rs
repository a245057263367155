//! What the server's errors mean; see <https://mariadb.com/kb/en/mariadb-error-codes/>.

use ruststream::transport::ErrorKind;
use sqlx::mysql::MySqlDatabaseError;

use crate::server::Judgement;

pub(super) fn judge(error: &sqlx::Error) -> Judgement {
    let number = error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>())
        .map(MySqlDatabaseError::number);
    let Some(number) = number else {
        let (kind, text) = match error {
            sqlx::Error::Configuration(cause) => (
                ErrorKind::Invalid,
                format!("the settings of the connection are wrong: {cause}"),
            ),
            sqlx::Error::Tls(cause) => (
                ErrorKind::Invalid,
                format!("no encrypted connection can be made: {cause}"),
            ),
            other => (
                ErrorKind::Unavailable,
                format!("the connection broke ({other}); another is made on the next call"),
            ),
        };
        return Judgement {
            kind,
            text,
            lost: true,
            again: false,
        };
    };
    let (kind, advice, lost) = match number {
        // A deadlock, a lock that was waited for too long.
        1205 | 1213 => {
            return Judgement {
                kind: ErrorKind::Busy,
                text: error.to_string(),
                lost: false,
                again: true,
            };
        }
        1040 | 1203 | 1226 => (
            ErrorKind::Busy,
            "the server has no connection left: raise its max_connections, or connect fewer processes",
            true,
        ),
        1021 | 1114 => (
            ErrorKind::Busy,
            "the disk of the server is full; make room and it works again",
            false,
        ),
        1044 | 1045 | 1142 | 1143 | 1227 | 1698 => (
            ErrorKind::Denied,
            "the server refuses this user: look at the password and the grants, or make the tables yourself and set \
             `.migrate(false)`",
            true,
        ),
        1049 => (ErrorKind::Invalid, "create it first, or name another", true),
        1053 | 1079 | 1152 | 1158..=1161 | 1184 | 1290 | 1836 | 1927 | 4031 => (
            ErrorKind::Unavailable,
            "another connection is made on the next call",
            true,
        ),
        1054 | 1146 => (
            ErrorKind::Incompatible,
            "the tables are not as this version made them",
            false,
        ),
        1118 | 1153 | 1406 => (
            ErrorKind::TooLarge,
            "a value is larger than the server takes; see its max_allowed_packet",
            number == 1153,
        ),
        1317 | 1969 | 3024 => (ErrorKind::Timeout, "the server's own limit ended it", false),
        _ => (ErrorKind::Refused, "the server refused a row", false),
    };
    Judgement {
        kind,
        text: format!("{error} ({advice})"),
        lost,
        again: false,
    }
}
