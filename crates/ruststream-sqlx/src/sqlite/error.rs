//! What `SQLite` says, in the words of the transport.

use std::path::Path;

use ruststream::transport::ErrorKind;

use crate::error::Failure;

/// The primary result codes of `SQLite` that are told apart here; see <https://www.sqlite.org/rescode.html>.
mod code {
    pub(super) const ERROR: i32 = 1;
    pub(super) const PERM: i32 = 3;
    pub(super) const BUSY: i32 = 5;
    pub(super) const LOCKED: i32 = 6;
    pub(super) const READONLY: i32 = 8;
    pub(super) const CORRUPT: i32 = 11;
    pub(super) const FULL: i32 = 13;
    pub(super) const CANTOPEN: i32 = 14;
    pub(super) const TOOBIG: i32 = 18;
    pub(super) const CONSTRAINT: i32 = 19;
    pub(super) const MISMATCH: i32 = 20;
    pub(super) const AUTH: i32 = 23;
    pub(super) const NOTADB: i32 = 26;
    /// Extended: the file was moved or replaced under the connection.
    pub(super) const READONLY_DBMOVED: i32 = 1032;
}

/// Names the file, what happened and what to do about it.
pub(super) fn failure(error: sqlx::Error, path: &Path) -> Failure {
    let file = path.display();
    let (kind, text, lost) = match result_code(&error) {
        Some(extended) => from_code(extended, &error, path),
        None => match &error {
            sqlx::Error::Io(io) => (
                ErrorKind::Invalid,
                format!("{file} cannot be used as an SQLite file: {io}"),
                true,
            ),
            _ => (
                ErrorKind::Unavailable,
                format!("the connection to {file} broke ({error}); it is opened again on the next call"),
                true,
            ),
        },
    };
    let failure = if lost {
        Failure::lost(kind, text)
    } else {
        Failure::new(kind, text)
    };
    failure.with_cause(error)
}

/// True where another writer holds the file, and waiting helps.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    result_code(error).is_some_and(|code| matches!(code & 0xff, code::BUSY | code::LOCKED))
}

fn result_code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

fn from_code(extended: i32, error: &sqlx::Error, path: &Path) -> (ErrorKind, String, bool) {
    let file = path.display();
    match extended & 0xff {
        code::BUSY | code::LOCKED => (
            ErrorKind::Busy,
            format!(
                "{file} is locked by another writer for longer than the busy timeout; try again, or end that writer"
            ),
            false,
        ),
        code::FULL => (
            ErrorKind::Busy,
            format!("the disk of {file} is full, or the file has reached its page limit; make room and it works again"),
            false,
        ),
        code::READONLY if extended == code::READONLY_DBMOVED => (
            ErrorKind::Unavailable,
            format!("{file} was moved or replaced; it is opened again on the next call"),
            true,
        ),
        code::READONLY | code::PERM | code::AUTH => (
            ErrorKind::Denied,
            format!("{file} cannot be written: give this user write access to the file and to its directory"),
            true,
        ),
        code::CANTOPEN => {
            let (kind, text) = cannot_open(path);
            (kind, text, true)
        }
        code::NOTADB => (
            ErrorKind::Invalid,
            format!("{file} is not an SQLite database: name another file, or move this one away"),
            true,
        ),
        code::CORRUPT => (
            ErrorKind::Incompatible,
            format!("{file} is damaged ({error}): restore it from a copy, or rescue it with `sqlite3 {file} .recover`"),
            true,
        ),
        code::TOOBIG => (
            ErrorKind::TooLarge,
            format!("a value is larger than SQLite takes ({error})"),
            false,
        ),
        code::CONSTRAINT | code::MISMATCH => (ErrorKind::Refused, format!("{file} refused a row: {error}"), false),
        // A missing table or column: the file was replaced. Opening again migrates it, or says why it cannot.
        code::ERROR => (
            ErrorKind::Unavailable,
            format!("{file} answered with an error ({error}); it is opened again on the next call"),
            true,
        ),
        _ => (
            ErrorKind::Unavailable,
            format!("{file} cannot be read or written ({error}); it is opened again on the next call"),
            true,
        ),
    }
}

/// `SQLite` says no more than "unable to open database file": the file system says why.
fn cannot_open(path: &Path) -> (ErrorKind, String) {
    let file = path.display();
    if path.is_dir() {
        return (
            ErrorKind::Invalid,
            format!(
                "{file} is a directory: name a file in it, such as {}",
                path.join("queue.db").display()
            ),
        );
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    if !parent.exists() {
        return (
            ErrorKind::Invalid,
            format!(
                "{file} cannot be created: the directory {} does not exist; create it first",
                parent.display()
            ),
        );
    }
    (
        ErrorKind::Denied,
        format!(
            "{file} cannot be opened: give this user read and write access to the file and to the directory {}",
            parent.display()
        ),
    )
}
