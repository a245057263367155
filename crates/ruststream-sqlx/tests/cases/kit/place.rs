//! Where a case takes place: a database, and a directory with the side file and the logs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use ruststream::message::Outgoing;
use ruststream::transport::{Broker, Connection, Publish};
use ruststream_sqlx::{QueueCounts, SqlxConnection};
use serde::Serialize;
use tempfile::TempDir;

use super::{Job, Node, Service, Side, of};
use crate::place::Place as Database;
use crate::support;

/// A database and a directory of a case.
pub(crate) struct Place {
    pub(crate) file: Database,
    directory: TempDir,
    pub(crate) side: Side,
    started: AtomicUsize,
}

impl Place {
    pub(crate) async fn new() -> Self {
        Self::on(Database::new().await)
    }

    pub(crate) fn on(file: Database) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let side = Side::open(&directory.path().join("side.txt"));
        Self {
            file,
            directory,
            side,
            started: AtomicUsize::new(0),
        }
    }

    fn within(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A service on the database, still to be told what it does.
    pub(crate) fn service(&self, node: &str) -> Service {
        Service::new(node, self.file.describe(), self.within("side.txt"))
    }

    /// Starts a process, without waiting for it.
    pub(crate) fn spawn(&self, service: &Service, environment: &[(&str, &str)]) -> Node {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let log = self.within(&format!("{}-{number}.log", service.node));
        Node::start(service, environment, log)
    }

    /// Starts a process and waits until it runs.
    pub(crate) async fn start(&self, service: &Service) -> Node {
        self.start_with(service, &[]).await
    }

    pub(crate) async fn start_with(&self, service: &Service, environment: &[(&str, &str)]) -> Node {
        let node = self.spawn(service, environment);
        let process = node.process;
        self.side
            .until("the start of a service", |lines| {
                of(lines, "ready").any(|line| line.process == process)
            })
            .await;
        node
    }

    pub(crate) async fn connect(&self) -> SqlxConnection {
        self.file.broker().connect().await.unwrap()
    }

    /// Publishes messages, in order.
    pub(crate) async fn publish(&self, queue: &str, jobs: &[Job]) {
        let connection = self.connect().await;
        publish(&connection, queue, jobs).await;
        connection.close().await;
    }

    pub(crate) async fn counts(&self, queue: &str) -> QueueCounts {
        self.connect().await.queue_counts(queue).await.unwrap()
    }

    /// Waits until nothing of a queue is ready, in hand or scheduled; answers how many dead letters it has.
    pub(crate) async fn drained(&self, queue: &str) -> u64 {
        let connection = self.connect().await;
        let counts = support::eventually(
            async || connection.queue_counts(queue).await.unwrap(),
            |counts| counts.ready + counts.leased + counts.scheduled == 0,
        )
        .await;
        counts.dead
    }
}

pub(crate) async fn publish<T: Serialize>(connection: &SqlxConnection, queue: &str, jobs: &[T]) {
    let payloads: Vec<Vec<u8>> = jobs.iter().map(|job| serde_json::to_vec(job).unwrap()).collect();
    let messages: Vec<_> = payloads.iter().map(|payload| Outgoing::new(queue, payload)).collect();
    connection.publisher().publish(&messages).await.unwrap();
}
