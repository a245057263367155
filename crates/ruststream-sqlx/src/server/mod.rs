//! What the database servers have in common: the tasks that work on one, and all that they decide.
//!
//! Each kind of work has a connection of its own, made when it is first needed, so that no kind waits for another: claims,
//! receipts, publishes, renewals of leases, and the tools of people. What differs between servers stands behind [`Dialect`].

mod claims;
mod dialect;
mod guards;
mod house;
mod inserts;
mod link;
mod news;
mod settings;
mod settles;
mod tables;
mod waiting;

use std::sync::Arc;

use ruststream::transport::TransportError;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

pub(crate) use self::dialect::{
    Answers, Connects, Count, Dialect, Judgement, Peek, Ping, PrepareError, Renewals, SettleRows, Share, Store, Wake,
};
pub(crate) use self::guards::Locks;
use self::guards::ServerGuards;
use self::link::Link;
pub(crate) use self::news::{News, SOME};
pub(crate) use self::settings::Settings;
use crate::engine::{Counters, Driver, Engine, Outlet};
use crate::guard::Guards;
use crate::operation::Operation;
use crate::table::TableWork;
use crate::transaction::{Bank, Lender};

const CLAIMS: usize = 0;
const SETTLES: usize = 1;
const INSERTS: usize = 2;
const LEASES: usize = 3;
const TOOLS: usize = 4;
const TABLE_CLAIMS: usize = 5;
const TABLE_WRITES: usize = 6;
const LANES: usize = 7;

/// What the tasks on one server share.
pub(crate) struct Base<D> {
    pub(crate) dialect: D,
    pub(crate) settings: Settings,
    pub(crate) counters: Arc<Counters>,
    pub(crate) news: Arc<News>,
    /// The connections that handlers may have.
    pub(crate) for_handlers: Arc<Semaphore>,
}

/// Connects, makes the tables, and starts the tasks.
pub(crate) async fn open<D: Dialect>(dialect: D, settings: Settings) -> Result<Engine, TransportError> {
    settings.check()?;
    let label = settings.label.clone();
    let counters = Arc::new(Counters::default());
    let base = Arc::new(Base {
        for_handlers: Arc::new(Semaphore::new(settings.for_handlers())),
        dialect,
        settings,
        counters: Arc::clone(&counters),
        news: Arc::default(),
    });
    let mut first = Link::new(Arc::clone(&base));
    first.prepare().await?;
    first.close().await;
    let listener = D::listen(&base);
    let driver = ServerDriver {
        bank: Bank::new(Arc::clone(&base)),
        guards: Arc::new(ServerGuards::new(Arc::clone(&base))),
        base,
        listener,
    };
    Ok(Engine::start(label, counters, driver))
}

struct ServerDriver<D: Dialect> {
    base: Arc<Base<D>>,
    bank: Arc<Bank<D>>,
    guards: Arc<ServerGuards<D>>,
    listener: Option<AbortHandle>,
}

impl<D: Dialect> Driver for ServerDriver<D> {
    fn lanes(&self) -> usize {
        LANES
    }

    fn lane_of(&self, operation: &Operation) -> usize {
        match operation {
            Operation::Claim(_) | Operation::Cancel { .. } => CLAIMS,
            Operation::Table(TableWork::Claim { .. }, _) => TABLE_CLAIMS,
            Operation::Table(..) => TABLE_WRITES,
            Operation::Settle(_) => SETTLES,
            Operation::Insert(_) | Operation::Tell { .. } => INSERTS,
            Operation::Renew(_) | Operation::Ping { .. } | Operation::Close { .. } => LEASES,
            Operation::Administer(_)
            | Operation::Letters(_)
            | Operation::Count { .. }
            | Operation::Open(_)
            | Operation::Prune(_) => TOOLS,
            #[cfg(test)]
            Operation::Panic => LEASES,
        }
    }

    fn lender(&self) -> Option<Arc<dyn Lender>> {
        Some(Arc::clone(&self.bank) as Arc<dyn Lender>)
    }

    fn guards(&self) -> Arc<dyn Guards> {
        Arc::clone(&self.guards) as Arc<dyn Guards>
    }

    fn start(&self, lane: usize, receiver: mpsc::Receiver<Operation>, outlet: Outlet) {
        let base = Arc::clone(&self.base);
        match lane {
            CLAIMS => drop(tokio::spawn(claims::Claims::new(base, receiver, outlet).run())),
            SETTLES => drop(tokio::spawn(settles::run(base, receiver, outlet))),
            INSERTS => drop(tokio::spawn(inserts::Inserts::new(base, receiver).run())),
            TABLE_CLAIMS | TABLE_WRITES => drop(tokio::spawn(tables::run(base, receiver))),
            _ => drop(tokio::spawn(house::run(base, receiver))),
        }
    }
}

impl<D: Dialect> Drop for ServerDriver<D> {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}
