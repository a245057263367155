//! Readings of meters are stored many at a time, so that a table takes them by one insert. A batch is handled when it is full or when
//! its first message is old enough; each message has its own outcome.

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the example is for")]

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ruststream::app::AppBuilder;
use ruststream::prelude::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Reading {
    meter: u32,
    watts: i64,
}

/// What was stored, by insert.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<Vec<Vec<Reading>>>>);

impl Table {
    fn inserts(&self) -> MutexGuard<'_, Vec<Vec<Reading>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores readings by one insert, all but those that cannot be: one outcome for each message, in their order.
///
/// What is refused is judged by the retry policy, each by itself: here it is given up. The others are acked.
#[subscriber("readings")]
async fn store(readings: &[Reading], State(table): State<Table>) -> Vec<Result<(), String>> {
    let checked = |reading: &Reading| match reading.watts {
        ..0 => Err(format!("meter {} runs backwards", reading.meter)),
        _ => Ok(()),
    };
    let outcomes: Vec<_> = readings.iter().map(checked).collect();
    let good = readings.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
    let rows: Vec<_> = good.map(|(reading, _)| reading.clone()).collect();
    println!("{} of {} readings stored by one insert", rows.len(), readings.len());
    if !rows.is_empty() {
        table.inserts().push(rows);
    }
    outcomes
}

fn collector(broker: MemoryBroker, table: Table) -> AppBuilder<Table> {
    RustStream::new(AppInfo::new("collector", env!("CARGO_PKG_VERSION")))
        .state(table)
        .with_broker(broker, |broker| {
            broker
                .include(store)
                .batch(4)
                .batch_age(Duration::from_millis(250))
                .retry(Retry::never());
        })
}

#[ruststream::app]
fn app() -> RustStream {
    let broker = MemoryBroker::new();
    let collector = collector(broker.clone(), Table::default());
    collector.after_startup(async move |app| {
        let watts = [230, 0, -5, 40, 1_100, 75];
        let readings: Vec<_> = (1..)
            .zip(watts)
            .map(|(meter, watts)| Reading { meter, watts })
            .collect();
        app.publisher().publish_many("readings", &readings).await?;
        broker.idle("readings").await;
        for dead in broker.dead_letters("readings") {
            println!("not stored: {}", dead.letter.error);
        }
        app.stop();
        Ok(())
    })
}
