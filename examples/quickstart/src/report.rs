//! Fills the queue once, shows how the work goes, and tells at the end what became of every order.

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the example is for")]

use std::error::Error;
use std::io::{IsTerminal, Write, stdout};
use std::sync::Arc;

use ruststream::app::AppHandle;
use ruststream::prelude::*;
use ruststream::transport::Broker;
use ruststream_sqlx::{QueueCounts, SqlxBroker};

use crate::Order;
use crate::ledger::{Ledger, Tally};

type Failure = Box<dyn Error + Send + Sync>;

const ORDERS: u64 = 400;

/// Fills the queue if this is a new run, and begins to show how the work goes.
pub(crate) async fn begin(app: AppHandle, database: SqlxBroker, ledger: Arc<Ledger>) -> HookResult {
    let connection = database.connect().await?;
    let lock = ledger.lock()?;
    if ledger.tally()?.finished {
        connection.dead_letters().purge_queue("orders").await?;
        ledger.clear()?;
    }
    let tally = ledger.tally()?;
    let waiting = connection.queue_counts("orders").await?;
    if tally.handled.is_empty() && open(&waiting) == 0 {
        let orders: Vec<Order> = (1..=ORDERS).map(order).collect();
        app.publisher().publish_many("orders", &orders).await?;
        app.publisher().publish_bytes("orders", *b"this is no order").await?;
        println!(
            "{ORDERS} orders and one that is none are in the queue. Kill me whenever you like: kill -9 {}\n",
            std::process::id()
        );
    } else {
        println!(
            "Going on where the last run ended: {} orders were handled, {} are still in the queue.\n",
            tally.handled.len(),
            open(&waiting)
        );
    }
    drop(lock);
    tokio::spawn(async move {
        match watch(&app, &database, &ledger).await {
            Ok(()) => {}
            Err(error) => println!("the report failed: {error}"),
        }
        app.stop();
    });
    Ok(())
}

/// One order has a price that no shop can charge.
fn order(id: u64) -> Order {
    let cents = if id == 13 { -1 } else { 100 + id.cast_signed() };
    Order {
        id,
        customer: format!("customer-{}", id % 7),
        cents,
    }
}

async fn watch(app: &AppHandle, database: &SqlxBroker, ledger: &Ledger) -> Result<(), Failure> {
    let connection = database.connect().await?;
    let on_terminal = stdout().is_terminal();
    let mut beat = tokio::time::interval(Duration::from_millis(if on_terminal { 100 } else { 1000 }));
    loop {
        beat.tick().await;
        let orders = connection.queue_counts("orders").await?;
        let receipts = connection.queue_counts("receipts").await?;
        let tally = ledger.tally()?;
        let line = format!(
            "handled {:3}   waiting {:3}   in hand {:2}   retry later {:2}   dead {}   mailed {:3}",
            tally.handled.len(),
            orders.ready,
            orders.leased,
            orders.scheduled,
            orders.dead,
            tally.mailed.len()
        );
        if on_terminal {
            print!("\r{line}  ");
            stdout().flush()?;
        } else {
            println!("{line}");
        }
        if open(&orders) + open(&receipts) == 0 {
            break;
        }
    }
    let lock = ledger.lock()?;
    let tally = ledger.tally()?;
    println!("\n");
    for letter in connection.dead_letters().list("orders", 10).await? {
        println!(
            "dead letter {}: {} after {} attempt(s)",
            letter.id, letter.reason, letter.attempts
        );
        println!("  why:     {}", letter.error);
        println!("  payload: {}", String::from_utf8_lossy(&letter.payload));
    }
    println!("\n{}", verdict(&tally));
    println!(
        "handlers ran {} times too often because of kills (0 without one)",
        doubled(&tally)
    );
    let health = app.health();
    for one in &health.subscriptions {
        println!(
            "this process: `{}` acked {}, failed {}, retried {}",
            one.name, one.acked, one.failed, one.retried
        );
    }
    if !tally.finished {
        ledger.finished()?;
    }
    drop(lock);
    Ok(())
}

/// Messages that are still to be handled.
fn open(counts: &QueueCounts) -> u64 {
    counts.ready + counts.leased + counts.scheduled
}

fn verdict(tally: &Tally) -> String {
    let lost: Vec<u64> = (1..=ORDERS)
        .filter(|id| *id != 13 && !tally.handled.contains_key(id))
        .collect();
    let unmailed = tally.handled.keys().filter(|id| !tally.mailed.contains_key(id)).count();
    format!(
        "of {ORDERS} orders {} were handled ({} after a retry), 1 is a dead letter, {} were lost, {unmailed} receipts are missing",
        tally.handled.len(),
        tally.retried,
        lost.len()
    )
}

fn doubled(tally: &Tally) -> u32 {
    tally
        .handled
        .values()
        .chain(tally.mailed.values())
        .map(|times| times - 1)
        .sum()
}
