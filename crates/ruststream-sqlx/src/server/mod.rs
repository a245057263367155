//! What the database servers have in common: the tasks that work on one, and all that they decide.
//!
//! Each kind of work has a connection of its own, made when it is first needed, so that no kind waits for another: claims,
//! receipts, publishes, renewals of leases, and the tools of people. What differs between servers stands behind [`Dialect`].

mod claims;
mod dialect;
mod house;
mod inserts;
mod link;
mod news;
mod settings;
mod settles;
mod waiting;

use std::sync::Arc;

use ruststream::transport::TransportError;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

pub(crate) use self::dialect::{
    Answers, Connects, Count, Dialect, Judgement, Peek, Ping, PrepareError, Renewals, SettleRows, Store, Wake,
};
use self::link::Link;
pub(crate) use self::news::{News, SOME};
pub(crate) use self::settings::Settings;
use crate::engine::{Counters, Driver, Engine, Outlet};
use crate::operation::Operation;
use crate::transaction::{Bank, Lender};

const CLAIMS: usize = 0;
const SETTLES: usize = 1;
const INSERTS: usize = 2;
const LEASES: usize = 3;
const TOOLS: usize = 4;
const LANES: usize = 5;

/// What the tasks on one server share.
pub(crate) struct Base<D> {
    pub(crate) dialect: D,
    pub(crate) settings: Settings,
    pub(crate) counters: Arc<Counters>,
    pub(crate) news: Arc<News>,
}

/// Connects, makes the tables, and starts the tasks.
pub(crate) async fn open<D: Dialect>(dialect: D, settings: Settings) -> Result<Engine, TransportError> {
    let label = settings.label.clone();
    let counters = Arc::new(Counters::default());
    let base = Arc::new(Base {
        dialect,
        settings,
        counters: Arc::clone(&counters),
        news: Arc::default(),
    });
    let mut first = Link::new(Arc::clone(&base));
    first.prepare().await?;
    first.close().await;
    let listener = D::listen(&base);
    let bank = Bank::new(Arc::clone(&base));
    Ok(Engine::start(label, counters, ServerDriver { base, bank, listener }))
}

struct ServerDriver<D: Dialect> {
    base: Arc<Base<D>>,
    bank: Arc<Bank<D>>,
    listener: Option<AbortHandle>,
}

impl<D: Dialect> Driver for ServerDriver<D> {
    fn lanes(&self) -> usize {
        LANES
    }

    fn lane_of(&self, operation: &Operation) -> usize {
        match operation {
            Operation::Claim(_) | Operation::Cancel { .. } => CLAIMS,
            Operation::Settle(_) => SETTLES,
            Operation::Insert(_) => INSERTS,
            Operation::Renew(_) | Operation::Ping { .. } | Operation::Close { .. } => LEASES,
            Operation::Administer(_) | Operation::Letters(_) | Operation::Count { .. } => TOOLS,
            #[cfg(test)]
            Operation::Panic => LEASES,
        }
    }

    fn lender(&self) -> Option<Arc<dyn Lender>> {
        Some(Arc::clone(&self.bank) as Arc<dyn Lender>)
    }

    fn start(&self, lane: usize, receiver: mpsc::Receiver<Operation>, outlet: Outlet) {
        let base = Arc::clone(&self.base);
        match lane {
            CLAIMS => drop(tokio::spawn(claims::Claims::new(base, receiver, outlet).run())),
            SETTLES => drop(tokio::spawn(settles::run(base, receiver))),
            INSERTS => drop(tokio::spawn(inserts::Inserts::new(base, receiver).run())),
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
