//! The tasks of a file: the writer takes all that changes it, the reader what is only read; a third has the tables of the user's own.

use std::sync::{Arc, Mutex, PoisonError};

use ruststream::transport::TransportError;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::mpsc;

use super::locks::FileGuards;
use super::reader::Reader;
use super::writer::Writer;
use super::{Settings, schema, tables};
use crate::engine::{Counters, Driver, Engine, Outlet};
use crate::guard::Guards;
use crate::operation::Operation;

const WRITER: usize = 0;
const READER: usize = 1;
const TABLES: usize = 2;

/// Opens the file and starts both.
pub(crate) async fn open(settings: Arc<Settings>) -> Result<Engine, TransportError> {
    let first = schema::open_writer(&settings).await?;
    let counters = Arc::new(Counters::default());
    let label = settings.path.display().to_string();
    let driver = SqliteDriver {
        settings,
        counters: Arc::clone(&counters),
        first: Mutex::new(Some(first)),
    };
    Ok(Engine::start(label, counters, driver))
}

struct SqliteDriver {
    settings: Arc<Settings>,
    counters: Arc<Counters>,
    /// The connection that proved that the file can be used.
    first: Mutex<Option<SqliteConnection>>,
}

impl Driver for SqliteDriver {
    fn lanes(&self) -> usize {
        3
    }

    fn lane_of(&self, operation: &Operation) -> usize {
        match operation {
            Operation::Letters(_) | Operation::Count { .. } => READER,
            Operation::Table(..) => TABLES,
            _ => WRITER,
        }
    }

    fn guards(&self) -> Arc<dyn Guards> {
        Arc::new(FileGuards::new(&self.settings.path))
    }

    fn start(&self, lane: usize, receiver: mpsc::Receiver<Operation>, _: Outlet) {
        let settings = Arc::clone(&self.settings);
        if lane == WRITER {
            let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
            tokio::spawn(Writer::new(settings, Arc::clone(&self.counters), receiver).run(first));
        } else if lane == TABLES {
            tokio::spawn(tables::run(settings, receiver));
        } else {
            tokio::spawn(Reader::new(settings).run(receiver));
        }
    }
}
