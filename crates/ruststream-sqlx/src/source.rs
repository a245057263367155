//! A queue to read from.

use std::sync::Arc;
use std::time::Duration;

use ruststream::transport::{Capabilities, DeadLetters, ErrorKind, Source, TransportError};

use crate::clock::millis;
use crate::connection::SqlxConnection;
use crate::fetch::InboxFetch;
use crate::guard::{Form, Guard, LockKey};
use crate::lease::Book;
use crate::operation::{Choice, Needs, Opening, Operation};
use crate::settle::InboxSettle;
use crate::table::{OpenTable, ReadRow, Role, TableDatabase, Wanted, decode};
use crate::terms::{Isolation, Terms};
use crate::walk::Walk;

/// The lease unless another is set.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The same where rows are locked: it bridges the moments between claim and lock.
const DEFAULT_LOCK_LEASE: Duration = Duration::from_secs(2);

/// The longest name of a queue, in bytes.
const LONGEST_NAME: usize = 200;

/// A named queue of the default table.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ruststream_sqlx::Inbox;
///
/// let orders = Inbox::queue("orders").lease(Duration::from_secs(5));
/// # let _ = orders;
/// ```
#[derive(Debug, Clone)]
pub struct Inbox {
    /// The place of its messages: the queue, or that of one of its groups.
    place: Arc<str>,
    queue: Arc<str>,
    group: Option<Arc<str>>,
    /// Thirty seconds unless set, or two where a lock says who is alive.
    lease: Option<Duration>,
    form: Form,
    singly: bool,
    transactional: bool,
    isolation: Option<Isolation>,
    choice: Choice,
    keep: Option<Duration>,
    keep_dead: Option<Duration>,
    table: Option<Wanted>,
}

impl Inbox {
    /// The queue of this name; any text of 1 to 200 bytes. It needs no making: a queue is there as soon as someone names it.
    ///
    /// A name that is empty or too long is told when the app is checked or started.
    pub fn queue(name: impl AsRef<str>) -> Self {
        let queue: Arc<str> = name.as_ref().into();
        Self {
            place: Arc::clone(&queue),
            queue,
            group: None,
            lease: None,
            form: Form::default(),
            singly: false,
            transactional: false,
            isolation: None,
            choice: Choice::default(),
            keep: None,
            keep_dead: None,
            table: None,
        }
    }

    /// A table of the user's own, by its struct: see [`InboxTable`](crate::InboxTable). Where the table has a column for groups, the name is that of the
    /// group; otherwise it is the name of the subscription alone.
    ///
    /// A handler takes the struct, or what the column of the payload has. [`lease`](Self::lease), [`fifo`](Self::fifo),
    /// [`priority`](Self::priority), [`keep`](Self::keep), [`keep_dead`](Self::keep_dead) and [`settle_each`](Self::settle_each) hold for
    /// it; what else can be set is told at the start.
    ///
    /// # Examples
    ///
    #[cfg_attr(feature = "sqlite", doc = "```")]
    #[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
    /// use ruststream::prelude::*;
    /// use ruststream_sqlx::{Inbox, Sqlite, SqlxBroker};
    ///
    /// #[derive(Inbox)]
    /// #[inbox(table = "jobs", run_at = "due", lease = "held_until", token = "holder")]
    /// struct Job {
    ///     #[inbox(id, generated)]
    ///     id: i64,
    ///     #[inbox(attempt, generated)]
    ///     attempts: i64,
    ///     city: String,
    /// }
    ///
    /// #[subscriber("jobs")]
    /// async fn visit(job: &Job) {
    ///     println!("job {}: off to {}", job.id, job.city);
    /// }
    ///
    /// let app = RustStream::new(AppInfo::new("visits", "1.0.0"))
    ///     .with_broker(SqlxBroker::sqlite("jobs.db").table::<Job>("jobs"), |broker| {
    ///         broker.include(visit);
    ///     })
    ///     .build();
    /// # let _ = (app, Inbox::table::<Job, Sqlite>("jobs"));
    /// ```
    pub fn table<T, D>(name: impl AsRef<str>) -> Self
    where
        D: TableDatabase,
        T: ReadRow<D::Sqlx>,
    {
        Self::queue(name).of(Wanted {
            spec: T::TABLE,
            decode: decode::<T, D::Sqlx>,
        })
    }

    pub(crate) fn of(mut self, table: Wanted) -> Self {
        self.table = Some(table);
        self
    }

    /// Reads as a group: each group of a queue gets each message, and the subscriptions of one group share them.
    ///
    /// A group is made when it is first opened, and lasts; it gets what is given out from then on. It has its own place beside
    /// the queue, `orders@billing` for the group `billing` of `orders`, by which its counts and dead letters go. Once a queue
    /// has groups, all its messages go to them, so there is nothing for who reads the queue itself.
    pub fn group(mut self, name: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        self.place = format!("{}@{name}", self.queue).into();
        self.group = Some(name.into());
        self
    }

    /// Sets how long a delivery is leased: 30 seconds unless set, and at least a millisecond.
    ///
    /// Leases are renewed while handlers work, so this bounds how long a message waits after its process was killed.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease.max(Duration::from_millis(1)));
        self
    }

    /// Keeps the order of each key, across all processes: of the messages with one key only the oldest is handed out, and the next
    /// when that is settled, a retry that it waits for included. Messages without a key have no order; a dead letter makes way.
    ///
    /// All subscriptions of the queue have to say so. It needs an index, which is made when the subscription is opened.
    pub fn fifo(mut self) -> Self {
        self.choice.fifo = true;
        self
    }

    /// Hands out messages with a [priority](crate::InboxOptions::priority) before those without, the highest first. Without it, all
    /// come in the order of their times.
    ///
    /// It needs an index, which is made when the subscription is opened.
    pub fn priority(mut self) -> Self {
        self.choice.priority = true;
        self
    }

    /// Keeps messages that are done for so long, with the state 2, in place of deleting them. Then they are deleted, some
    /// hundred at a time.
    pub fn keep(mut self, time: Duration) -> Self {
        self.keep = Some(time);
        self
    }

    /// Deletes dead letters of the queue after so long. They stay for ever unless this is set.
    pub fn keep_dead(mut self, time: Duration) -> Self {
        self.keep_dead = Some(time);
        self
    }

    /// Keeps what is claimed locked in the database: the transaction that has its rows locked (`FOR UPDATE SKIP LOCKED`) is open
    /// while handlers work, and ends when the process does. So others get its messages within the [lease](Self::lease), which is two
    /// seconds here unless set, however long handlers take. Attempts are counted before, so that a message which kills its
    /// process is counted too.
    ///
    /// Each claim has a connection of its own, of which there are as many as
    /// [`lock_connections`](crate::SqlxBroker::lock_connections) says. On servers; `SQLite` has no row locks, and says so at the start.
    pub fn row_lock(mut self) -> Self {
        self.form = Form::RowLock;
        self
    }

    /// Takes a lock by name for what is claimed, beside its lease: what has the same name is not handled at the same time, also by
    /// programs that know nothing of this crate and take the lock themselves. A message whose lock is taken waits, and no attempt
    /// is counted.
    ///
    /// The name is `orders/17`, by the [key](LockKey). On Postgres the lock is `pg_try_advisory_lock(hashtextextended('SCHEMA/orders/17',
    /// 0))`; on MySQL `GET_LOCK('DATABASE/orders/17', 0)`, or the MD5 of that name where it has more than 64 letters; on `SQLite` the lock
    /// of a file beside that of the queue. All end with the process.
    pub fn advisory_lock(mut self, key: LockKey) -> Self {
        self.form = Form::Advisory(key);
        self.choice.fifo |= key == LockKey::Key;
        self
    }

    /// Claims one message at a time and settles it by a statement of its own: nothing is grouped. It is slower by far; for who has
    /// to see each message by itself in the database.
    pub fn settle_each(mut self) -> Self {
        self.singly = true;
        self
    }

    /// Claims each message in the transaction that its handler takes ([`Tx`](crate::Tx)): its row is the first thing locked there, so no
    /// one else gets it while the transaction is open, whatever becomes of its lease. What the handler writes, its replies into the
    /// same database and the ack commit together, or none of them. Takes the place of [`row_lock`](Self::row_lock). On servers.
    pub fn transactional(mut self) -> Self {
        self.transactional = true;
        self
    }

    /// Sets the isolation of the transactions that handlers take. That of the server unless set; `READ COMMITTED` on MySQL.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = Some(isolation);
        self
    }

    fn leased(&self) -> Duration {
        self.lease.unwrap_or(match self.form {
            Form::RowLock => DEFAULT_LOCK_LEASE,
            Form::Lease | Form::Advisory(_) => DEFAULT_LEASE,
        })
    }

    fn terms(&self, connection: &SqlxConnection, table: Option<Arc<OpenTable>>) -> Terms {
        Terms {
            encloses: !connection.routes(),
            table,
            queue: Arc::clone(&self.place),
            shared: self.group.is_some().then(|| Arc::clone(&self.queue)),
            lease: millis(self.leased()),
            form: if self.transactional && self.form == Form::RowLock {
                Form::Lease
            } else {
                self.form
            },
            singly: self.singly,
            transactional: self.transactional,
            isolation: self.isolation,
            choice: self.choice,
            keep: self.keep.map(millis),
            keep_dead: self.keep_dead.map(millis),
            max_payload: connection.max_payload(),
        }
    }
}

/// Says what is wrong with the name of a queue.
pub(crate) fn check_name(name: &str) -> Result<(), TransportError> {
    let text = if name.is_empty() {
        "the name of the queue is empty: give it one of 1 to 200 bytes".to_owned()
    } else if name.len() > LONGEST_NAME {
        let start: String = name.chars().take(20).collect();
        format!(
            "the name of the queue {start:?}... has {} bytes: give it one of at most {LONGEST_NAME}",
            name.len()
        )
    } else if name.contains('\0') {
        format!("the name of the queue {name:?} contains a NUL, which not every database can store: leave it out")
    } else {
        return Ok(());
    };
    Err(TransportError::new(ErrorKind::Invalid, text))
}

impl Source for Inbox {
    type Connection = SqlxConnection;
    type Fetch = InboxFetch;
    type Settle = InboxSettle;

    fn name(&self) -> &str {
        &self.place
    }

    fn capabilities(&self) -> Capabilities {
        let all = Capabilities::none()
            .with_lease(self.leased())
            .with_delay()
            .with_attempts();
        match &self.table {
            Some(table) if !table.spec.columns.iter().any(|column| column.role == Role::DeadAt) => all,
            _ => all.with_dead_letters(),
        }
    }

    fn check(&self) -> Result<(), TransportError> {
        check_name(&self.place)?;
        if let Some(table) = &self.table {
            let unfit = [
                (self.form != Form::Lease, "a lock"),
                (self.transactional, "`.transactional()`"),
                (self.group.is_some(), "`.group(..)`"),
            ];
            if let Some((_, what)) = unfit.into_iter().find(|(set, _)| *set) {
                return Err(TransportError::new(
                    ErrorKind::Invalid,
                    format!(
                        "the table {:?} of your own is read under a lease: leave out {what}",
                        table.spec.table
                    ),
                ));
            }
        }
        match &self.group {
            Some(group) if group.is_empty() => Err(TransportError::new(
                ErrorKind::Invalid,
                format!("the name of a group of the queue {:?} is empty", self.queue),
            )),
            _ => Ok(()),
        }
    }

    async fn open(&self, connection: &SqlxConnection) -> Result<(InboxFetch, InboxSettle), TransportError> {
        self.check()?;
        let engine = connection.engine();
        engine.check_open()?;
        if self.transactional && !engine.lends() {
            return Err(TransportError::new(
                ErrorKind::Invalid,
                format!(
                    "{} lends no transactions to handlers: leave out `.transactional()`",
                    engine.label()
                ),
            ));
        }
        let group = self.group.as_ref();
        let needs = Needs {
            choice: self.choice,
            group: group.map(|group| (Arc::clone(&self.queue), Arc::clone(group), Arc::clone(&self.place))),
            make: true,
        };
        let mut opened = None;
        if let Some(table) = &self.table {
            opened = Some(OpenTable::open(engine, table, &self.queue, self.choice).await?);
        } else if needs.choice != Choice::default() || needs.group.is_some() {
            engine.ask(|reply| Operation::Open(Opening { needs, reply })).await?;
        }
        let book = Book::default();
        let terms = Arc::new(self.terms(connection, opened));
        let guard = Guard::open(engine, &terms)?;
        Ok((
            InboxFetch::new(engine.clone(), Arc::clone(&terms), book.clone(), guard.clone()),
            InboxSettle::new(engine.clone(), terms, book, guard),
        ))
    }
    async fn dead_letters(&self, connection: &SqlxConnection) -> Result<Option<Box<dyn DeadLetters>>, TransportError> {
        let walk = Walk::new(connection.engine().clone(), Arc::clone(&self.queue));
        Ok(Some(Box::new(walk)))
    }
}
