//! The settings of a file.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ruststream::transport::{Broker, ErrorKind, TransportError};
use sqlx::sqlite::SqliteConnectOptions;

use super::clock::Clock;
use crate::broker::SqlxBroker;
use crate::connection::SqlxConnection;
use crate::source::Inbox;

/// A file of `SQLite`, made by [`SqlxBroker::sqlite`].
#[derive(Debug, Clone)]
pub struct Sqlite {
    settings: Settings,
}

/// When a commit of `SQLite` is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Synchronous {
    /// A commit is in the hands of the operating system: it survives the end of the process, however sudden. A power cut or a
    /// crash of the system can undo the last commits; the file stays sound.
    #[default]
    Normal,
    /// A commit is on the disk before it is confirmed, and survives a power cut. Each group of operations waits for the disk.
    Full,
}

impl Synchronous {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Normal => "NORMAL",
            Self::Full => "FULL",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) path: PathBuf,
    /// Why `path` cannot be used; told when connecting.
    invalid: Option<String>,
    pub(crate) synchronous: Synchronous,
    pub(crate) busy_timeout: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) pragmas: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    pub(crate) clock: Clock,
}

impl SqlxBroker<Sqlite> {
    /// An `SQLite` file, created when it is missing. Takes a path, or a URL such as `sqlite:orders.db` or
    /// `sqlite:///var/lib/orders.db`.
    ///
    /// What is wrong with the path is told by [`connect`](Broker::connect).
    pub fn sqlite(path: impl AsRef<Path>) -> Self {
        let (path, invalid) = match file_of(path.as_ref()) {
            Ok(file) => (file, None),
            Err(text) => (path.as_ref().to_owned(), Some(text)),
        };
        Self::new(Sqlite {
            settings: Settings {
                path,
                invalid,
                synchronous: Synchronous::default(),
                busy_timeout: Duration::from_secs(5),
                poll_interval: Duration::from_millis(100),
                pragmas: Vec::new(),
                clock: Clock::system(),
            },
        })
    }

    /// Sets when a commit is on the disk. [`Synchronous::Normal`] unless set.
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.database.settings.synchronous = synchronous;
        self
    }

    /// Sets how long an operation waits for other writers of the file. Five seconds unless set.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.database.settings.busy_timeout = timeout;
        self
    }

    /// Sets how often a waiting subscription looks whether another process wrote to the file: 100 ms unless set, give or take a
    /// fifth. Messages of this process need no look, and an idle look reads one number.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.database.settings.poll_interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Sets a pragma of `SQLite` on every connection, such as `cache_size` or `mmap_size`. `journal_mode` and `synchronous` are
    /// the crate's own.
    pub fn pragma(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) -> Self {
        self.database.settings.pragmas.push((name.into(), value.into()));
        self
    }

    /// Sets where the time comes from: leases, delays and time stamps. The system's clock unless set; tests set another.
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.database.settings.clock = Clock::new(clock);
        self
    }
}

impl Broker for SqlxBroker<Sqlite> {
    type Connection = SqlxConnection;
    type Source = Inbox;

    fn label(&self) -> String {
        format!("sqlite {}", self.database.settings.path.display())
    }

    fn source(&self, name: &str) -> Inbox {
        self.inbox(name)
    }

    fn check(&self) -> Result<(), TransportError> {
        let Settings { path, invalid, .. } = &self.database.settings;
        let wrong = |text: String| Err(TransportError::new(ErrorKind::Invalid, text));
        if let Some(text) = invalid {
            return wrong(text.clone());
        }
        if path.is_dir() {
            return wrong(format!("{} is a folder: name a file in it", path.display()));
        }
        match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => wrong(format!(
                "{} is in no folder: make {}, or name another file",
                path.display(),
                folder.display()
            )),
            _ => Ok(()),
        }
    }

    async fn connect(&self) -> Result<SqlxConnection, TransportError> {
        let settings = &self.database.settings;
        if let Some(text) = &settings.invalid {
            return Err(TransportError::new(ErrorKind::Invalid, text.clone()));
        }
        let engine = super::open(Arc::new(settings.clone())).await?;
        SqlxConnection::open(engine, self.max_payload, &self.tables).await
    }
}

/// The file that a path or URL names.
fn file_of(path: &Path) -> Result<PathBuf, String> {
    let Some(text) = path.to_str() else {
        return Err(format!(
            "{} is not UTF-8, and SQLite takes no other file names",
            path.display()
        ));
    };
    let file = if text.starts_with("sqlite:") {
        let wrong = |what: &str| format!("{text:?} is no URL of a queue's file: {what}; write sqlite:path/to/file.db");
        if let Some((_, parameters)) = text.split_once('?')
            && parameters != "mode=rwc"
        {
            return Err(wrong(&format!(
                "of parameters, only mode=rwc is taken, not {parameters:?}"
            )));
        }
        let options = SqliteConnectOptions::from_str(text).map_err(|error| wrong(&error.to_string()))?;
        options.get_filename().to_owned()
    } else {
        path.to_owned()
    };
    let name = file.to_string_lossy();
    if name.is_empty() || name.contains(":memory:") || name.starts_with("file:sqlx-in-memory") {
        return Err(format!(
            "{text:?} names no file: a queue lives in a file, so name one, such as orders.db; for a queue in memory use the \
             memory broker"
        ));
    }
    if name.contains('\0') {
        return Err(format!("{text:?} contains a NUL, which no file name can"));
    }
    // SQLite reads a name that begins so as a URL.
    if name.starts_with("file:") {
        return Ok(Path::new(".").join(file));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_nowhere_is_told_before_connecting() {
        let folder = std::env::temp_dir();
        assert!(SqlxBroker::sqlite("orders.db").check().is_ok());
        assert!(SqlxBroker::sqlite(folder.join("orders.db")).check().is_ok());
        for (path, word) in [
            (folder.clone(), "is a folder"),
            (folder.join("no-such-folder/orders.db"), "make "),
            (PathBuf::from(""), "names no file"),
        ] {
            let error = SqlxBroker::sqlite(&path).check().unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn the_password_of_a_url_that_is_no_path_is_not_told() {
        let error = SqlxBroker::sqlite("postgres://shop:secret@db/orders")
            .check()
            .unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn paths_and_urls_name_the_same_file() {
        for url in [
            "orders.db",
            "sqlite:orders.db",
            "sqlite://orders.db",
            "sqlite:orders.db?mode=rwc",
        ] {
            assert_eq!(SqlxBroker::sqlite(url).label(), "sqlite orders.db", "{url}");
        }
        assert_eq!(
            SqlxBroker::sqlite("sqlite:///a b/orders.db").label(),
            "sqlite /a b/orders.db"
        );
        assert_eq!(SqlxBroker::sqlite("file:x?y").label(), "sqlite ./file:x?y");
    }

    #[test]
    fn what_names_no_file_is_refused() {
        for name in [
            "",
            ":memory:",
            "sqlite::memory:",
            "sqlite:",
            "a\0b",
            "sqlite:x.db?mode=memory",
            "sqlite:x.db?nonsense=1",
        ] {
            let broker = SqlxBroker::sqlite(name);
            assert!(
                broker.database.settings.invalid.is_some(),
                "{name:?}: {:?}",
                broker.database.settings.path
            );
        }
    }
}
