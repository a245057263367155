//! Messages that cannot be read, and handlers that panic: kept with their reason, and no one else is delayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ruststream::app::SubscriptionState;
use ruststream::handler::{Call, Extract, Layer, Outcome, Single};
use ruststream::message::{HeaderMap, Outgoing, header};
use ruststream::prelude::*;
use ruststream::transport::{Connection, Publish};
use serde::de::Deserializer;

use crate::kit::publish;
use crate::place::Place as File;
use crate::support::eventually;

#[derive(Debug, Clone, Default)]
struct Handled(Arc<AtomicUsize>);

impl Handled {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u64,
}

#[subscriber("orders")]
async fn take(order: Order, State(handled): State<Handled>) {
    assert!(order.id < 100);
    handled.0.fetch_add(1, Ordering::SeqCst);
}

/// C14: what cannot be read becomes a dead letter at its first delivery, byte for byte, and what comes after is handled.
#[tokio::test]
async fn poison_is_kept_byte_for_byte_and_stops_no_one() {
    let file = File::new().await;
    let connection = file.connect().await;
    let (mut not_utf8, mut unknown) = (HeaderMap::new(), HeaderMap::new());
    not_utf8.insert(header::CONTENT_TYPE, vec![0xff, b'j']);
    unknown.insert(header::CONTENT_TYPE, "application/x-nothing-we-know");
    let none = HeaderMap::new();
    let poison: [(&[u8], &HeaderMap); 5] = [
        (b"{\"id\": 1,,", &none),
        (b"\"seven\"", &none),
        (b"", &none),
        (b"{\"id\": 4}", &not_utf8),
        (b"{\"id\": 5}", &unknown),
    ];
    let messages: Vec<_> = poison
        .iter()
        .map(|(payload, headers)| Outgoing::new("orders", payload).with_headers(headers))
        .collect();
    connection.publisher().publish(&messages).await.unwrap();
    let good: Vec<Order> = (0..100).map(|id| Order { id }).collect();
    publish(&connection, "orders", &good).await;
    let handled = Handled::default();

    let running = RustStream::new(AppInfo::new("case", "1.0.0"))
        .state(handled.clone())
        .with_broker(file.broker(), |broker| {
            broker.include(take);
        })
        .start()
        .await
        .unwrap();
    eventually(async || handled.count(), |count| *count == 100).await;

    let counts = eventually(
        async || connection.queue_counts("orders").await.unwrap(),
        |counts| counts.ready + counts.leased + counts.scheduled == 0,
    )
    .await;
    assert_eq!(counts.dead, 5);
    let letters = connection.dead_letters().list("orders", 10).await.unwrap();
    for (letter, (payload, headers)) in letters.iter().zip(poison) {
        assert_eq!(letter.payload, payload);
        assert_eq!(letter.headers, *headers);
        assert_eq!(letter.attempts, 1, "{}", letter.error);
        assert_eq!(letter.reason, "undecodable");
        assert!(!letter.error.is_empty());
    }
    let health = running.health().subscriptions.remove(0);
    assert_eq!(health.state, SubscriptionState::Running);
    assert_eq!((health.acked, health.dead_lettered, health.retried), (100, 5, 0));
    assert_eq!(handled.count(), 100);
    running.shutdown().await.unwrap();
}

/// Where a message lets its handling panic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Bomb {
    id: u64,
    place: String,
}

impl Bomb {
    fn new(id: u64, place: &str) -> Self {
        let place = place.to_owned();
        Self { id, place }
    }
}

impl<'de> Deserialize<'de> for Bomb {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Plain {
            id: u64,
            place: String,
        }
        let Plain { id, place } = Plain::deserialize(deserializer)?;
        assert!(place != "codec", "boom in the codec");
        Ok(Self { id, place })
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(self.place != "drop" || std::thread::panicking(), "boom in the drop");
    }
}

fn place_of(payload: &[u8]) -> &str {
    let text = std::str::from_utf8(payload).unwrap();
    let (_, place) = text.split_once("\"place\":\"").unwrap();
    place.split('"').next().unwrap()
}

struct Fuse;

impl<'a, S: Send + Sync> Extract<'a, S> for Fuse {
    type Rejection = &'static str;

    async fn extract(call: Call<'a, S>) -> Result<Self, Self::Rejection> {
        assert!(
            place_of(call.incoming().payload()) != "extractor",
            "boom in the extractor"
        );
        Ok(Self)
    }
}

struct Shield;

impl Layer for Shield {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        assert!(place_of(call.incoming().payload()) != "layer", "boom in the layer");
        next.call(call).await
    }
}

#[subscriber("bombs")]
async fn handle(bomb: &Bomb, _fuse: Fuse, State(handled): State<Handled>) {
    tokio::task::yield_now().await;
    assert!(bomb.place != "handler", "boom in the handler");
    if bomb.place == "nowhere" {
        handled.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// C16: a panic anywhere in a call is a failed attempt, its text is kept, and every worker lives on.
#[tokio::test]
async fn panics_anywhere_leave_two_workers_alive_and_their_text_in_the_dead_letter() {
    let places = ["handler", "extractor", "codec", "layer", "drop"];
    let file = File::new().await;
    let connection = file.connect().await;
    let bombs = places
        .iter()
        .zip(1000..)
        .map(|(place, id)| format!("{{\"id\":{id},\"place\":\"{place}\"}}"));
    let bombs: Vec<String> = bombs.collect();
    let messages: Vec<_> = bombs
        .iter()
        .map(|bomb| Outgoing::new("bombs", bomb.as_bytes()))
        .collect();
    connection.publisher().publish(&messages).await.unwrap();
    let good: Vec<Bomb> = (0..100).map(|id| Bomb::new(id, "nowhere")).collect();
    publish(&connection, "bombs", &good).await;
    let handled = Handled::default();

    let running = RustStream::new(AppInfo::new("case", "1.0.0"))
        .state(handled.clone())
        .with_broker(file.broker(), |broker| {
            broker.layer(Shield, |broker| {
                broker
                    .include(handle)
                    .workers(2)
                    .retry(Retry::fixed(Duration::from_millis(5)).attempts(2));
            });
        })
        .start()
        .await
        .unwrap();
    let counts = eventually(
        async || connection.queue_counts("bombs").await.unwrap(),
        |counts| counts.ready + counts.leased + counts.scheduled == 0,
    )
    .await;

    assert_eq!((handled.count(), counts.dead), (100, 5));
    let health = running.health().subscriptions.remove(0);
    assert_eq!((health.state, health.workers), (SubscriptionState::Running, 2));
    let letters = connection.dead_letters().list("bombs", 10).await.unwrap();
    for (letter, place) in letters.iter().zip(places) {
        assert_eq!(place_of(&letter.payload), place);
        assert_eq!(letter.attempts, 2);
        assert!(
            letter.error.contains(&format!("boom in the {place}")),
            "{}",
            letter.error
        );
    }
    running.shutdown().await.unwrap();
}
