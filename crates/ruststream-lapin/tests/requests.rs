//! Requests and their answers, by direct reply-to on a real server.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ruststream::app::Running;
use ruststream::conformance::unique_name;
use ruststream::prelude::*;
use ruststream::transport::{Broker, Connection};
use ruststream_lapin::{LapinBroker, Queue};
use servers::{Kind, Proxy};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

fn url() -> String {
    servers::shared(Kind::Rabbit).unwrap()
}

#[derive(Clone)]
struct Desk {
    /// How many answers may be given.
    open: Arc<Semaphore>,
    asked: Arc<AtomicU32>,
    reply_to: Arc<Mutex<String>>,
}

#[subscriber("quotes", reply)]
async fn quote(pieces: u64, context: Context<'_>, State(desk): State<Desk>) -> u64 {
    desk.asked.fetch_add(1, Ordering::Relaxed);
    context
        .headers()
        .get_str("reply-to")
        .unwrap()
        .clone_into(&mut desk.reply_to.lock().unwrap());
    desk.open.acquire().await.unwrap().forget();
    pieces * 250
}

/// A service that answers, and an app that asks.
struct Shop {
    queue: String,
    desk: Desk,
    answering: Running,
    asking: Running,
    proxy: Proxy,
}

impl Shop {
    async fn open(answers: usize) -> Self {
        let queue = unique_name();
        let desk = Desk {
            open: Arc::new(Semaphore::new(answers)),
            asked: Arc::default(),
            reply_to: Arc::default(),
        };
        let source = Queue::new(&queue);
        let answering = RustStream::new(AppInfo::new("shop", "1"))
            .state(desk.clone())
            .with_broker(LapinBroker::new(url()), |broker| {
                broker.include(quote).source(source).workers(16);
            })
            .start()
            .await
            .unwrap();
        let url = url();
        let (front, rest) = url.rsplit_once(':').unwrap();
        let (port, vhost) = rest.split_once('/').unwrap_or((rest, ""));
        let proxy = Proxy::to(port.parse().unwrap()).unwrap();
        let cuttable = LapinBroker::new(format!("{front}:{}/{vhost}", proxy.port()));
        let asking = RustStream::new(AppInfo::new("customer", "1"))
            .with_broker(cuttable, |_| {})
            .start()
            .await
            .unwrap();
        Self {
            queue,
            desk,
            answering,
            asking,
            proxy,
        }
    }

    async fn close(self) {
        self.asking.shutdown().await.unwrap();
        self.answering.shutdown().await.unwrap();
    }

    async fn asked(&self, times: u32) {
        let asked = async {
            while self.desk.asked.load(Ordering::Relaxed) < times {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, asked).await.unwrap_or_else(|_| {
            panic!(
                "{} of {times} requests came; {:?}",
                self.desk.asked.load(Ordering::Relaxed),
                self.asking.health()
            )
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_at_once_have_each_its_own_answer_and_need_no_queue() {
    let shop = Shop::open(Semaphore::MAX_PERMITS).await;
    let client = shop.asking.client().await.unwrap();
    let requests = (0..500u64).map(|pieces| {
        let (client, queue) = (client.clone(), shop.queue.clone());
        tokio::spawn(async move { client.request::<u64, u64>(queue, &pieces).timeout(PATIENCE).await })
    });
    for (pieces, request) in (0..500u64).zip(requests.collect::<Vec<_>>()) {
        assert_eq!(request.await.unwrap().unwrap(), pieces * 250);
    }
    assert_eq!(client.strays(), 0);
    let reply_to = shop.desk.reply_to.lock().unwrap().clone();
    assert!(reply_to.starts_with("amq.rabbitmq.reply-to."), "{reply_to}");
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_late_is_counted_as_a_stray() {
    let shop = Shop::open(0).await;
    let client = shop.asking.client().await.unwrap();
    let late = client
        .request::<u64, u64>(shop.queue.clone(), &1)
        .timeout(Duration::from_millis(300))
        .await;
    assert!(late.unwrap_err().is_timeout());
    let missing = client.request::<u64, u64>("no-such-queue", &1).await.unwrap_err();
    assert!(missing.is_unpublished(), "{missing}");

    shop.desk.open.add_permits(1);
    let counted = async {
        while client.strays() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, counted).await.expect("the stray was not counted");
    // Anyone who knows the address may send there.
    let reply_to = shop.desk.reply_to.lock().unwrap().clone();
    shop.answering.publisher().publish(reply_to, &7u64).await.unwrap();
    let counted = async {
        while client.strays() < 2 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, counted)
        .await
        .expect("the second stray was not counted");
    shop.desk.open.add_permits(1);
    let answer = client.request::<u64, u64>(shop.queue.clone(), &2).await.unwrap();
    assert_eq!(answer, 500);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_when_the_link_is_lost_are_answered_on_the_next() {
    let shop = Shop::open(0).await;
    let client = shop.asking.client().await.unwrap();
    let requests: Vec<_> = (0..3u64)
        .map(|pieces| {
            let (client, queue) = (client.clone(), shop.queue.clone());
            tokio::spawn(async move { client.request::<u64, u64>(queue, &pieces).timeout(PATIENCE).await })
        })
        .collect();
    shop.asked(3).await;
    // A request whose confirm is lost is an error to its caller, so the confirms are given the time to come.
    sleep(Duration::from_millis(200)).await;
    shop.proxy.cut();
    // What was asked goes to a place where nobody hears it any more; asked again, it is answered.
    shop.asked(6).await;
    shop.desk.open.add_permits(6);
    for (pieces, request) in (0..3u64).zip(requests) {
        assert_eq!(request.await.unwrap().unwrap(), pieces * 250);
    }
    assert_eq!(client.strays(), 0, "the answers to the lost place went nowhere");
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_one_who_is_gone_is_no_failure_of_the_handler() {
    let shop = Shop::open(0).await;
    let client = shop.asking.client().await.unwrap();
    let gone = client
        .request::<u64, u64>(shop.queue.clone(), &1)
        .timeout(Duration::from_millis(300))
        .await;
    assert!(gone.unwrap_err().is_timeout());
    drop(client);
    shop.asking.shutdown().await.unwrap();
    shop.desk.open.add_permits(10);
    shop.answering.shutdown().await.unwrap();
    assert_eq!(shop.desk.asked.load(Ordering::Relaxed), 1, "handled again");
    let connection = LapinBroker::new(url()).connect().await.unwrap();
    let dead = connection.dead_letters(format!("{}.dead", shop.queue)).list(1).await;
    assert!(dead.is_err_and(|error| error.is_unroutable()), "a dead letter");
    connection.close().await;
}
