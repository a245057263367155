//! Where messages end that cannot be handled, and what is kept of them.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{
    Fault, Gate, Half, Record, Reduced, handler, health, publish, publish_ids, publish_with, start, start_one, within,
};
use ruststream::app::SubscriptionState;
use ruststream::memory::Operation;
use ruststream::message::{HeaderMap, Outgoing};
use ruststream::policy::OnUndecodable;
use ruststream::prelude::*;
use ruststream::transport::{Capabilities, DeadReason, ErrorKind, Publish};

type Seen = Record<(u64, u32)>;

#[subscriber("orders")]
async fn number(id: u64, State(seen): State<Seen>, context: Context<'_>) {
    seen.add((id, context.attempt()));
}

#[subscriber("orders")]
async fn refuse(_payload: &[u8]) -> Result<(), String> {
    Err("refused: Straße 7, 東京".to_owned())
}

fn some_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("region", "eu");
    headers.append("trace", vec![0xff, 0x00, 0xfe]);
    headers.append("trace", "second");
    headers.insert("empty", "");
    headers
}

const BYTES: &[u8] = b"\x00\xff{\"id\": \xc3\x28 not utf-8\r\n";

#[tokio::test(start_paused = true)]
async fn where_no_place_is_named_the_brokers_own_keeps_them() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(refuse).retry(Retry::never());
    })
    .await;
    let before = SystemTime::now();

    let (headers, key) = (some_headers(), b"customer-7");
    let message = Outgoing::new("orders", BYTES).with_headers(&headers).with_key(key);
    broker.publisher().publish(&[message]).await.unwrap();
    within(broker.idle("orders")).await;

    let dead = &broker.dead_letters("orders")[0];
    assert_eq!((&dead.payload[..], &dead.headers), (BYTES, &headers));
    assert_eq!(dead.key.as_deref(), Some(&key[..]));
    assert_eq!(dead.letter.error, "refused: Straße 7, 東京");
    assert_eq!(dead.letter.reason, DeadReason::AttemptsExhausted);
    assert!(dead.letter.at >= before && dead.letter.at <= SystemTime::now());
    assert_eq!(health(&running).dead_lettered, 1);
    running.shutdown().await.unwrap();
}

/// What a copy among the dead letters must carry.
fn assert_is_copy(copy: &ruststream::memory::StandingMessage, attempts: &str, before: SystemTime) {
    assert_eq!(
        (&copy.payload[..], copy.key.as_deref()),
        (BYTES, Some(&b"customer-7"[..]))
    );
    let original = copy
        .headers
        .iter()
        .filter(|(name, _)| !name.starts_with("dead-letter-"));
    assert_eq!(original.collect::<Vec<_>>(), some_headers().iter().collect::<Vec<_>>());
    let header = |name: &str| copy.headers.get_str(name).unwrap();
    assert_eq!(header("dead-letter-reason"), "attempts-exhausted");
    assert_eq!(header("dead-letter-error"), "refused: Straße 7, 東京");
    assert_eq!(header("dead-letter-attempts"), attempts);
    assert_eq!(header("dead-letter-source"), "orders");
    for time in ["dead-letter-at", "dead-letter-published-at"] {
        let time = UNIX_EPOCH + Duration::from_millis(header(time).parse().unwrap());
        assert!(time + Duration::from_millis(1) > before && time <= SystemTime::now());
    }
}

#[tokio::test(start_paused = true)]
async fn a_named_place_gets_a_copy_byte_for_byte_with_the_reason_in_its_headers() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope
            .include(refuse)
            .retry(Retry::fixed(Duration::from_secs(1)).attempts(2))
            .dead_letter("graveyard");
    })
    .await;
    let before = SystemTime::now();

    let headers = some_headers();
    let message = Outgoing::new("orders", BYTES)
        .with_headers(&headers)
        .with_key(b"customer-7");
    broker.publisher().publish(&[message]).await.unwrap();
    within(broker.idle("orders")).await;

    let graveyard = broker.published("graveyard");
    assert_eq!(graveyard.len(), 1);
    assert_is_copy(&graveyard[0], "2", before);
    assert!(broker.dead_letters("orders").is_empty());
    let health = health(&running);
    assert_eq!((health.acked, health.dead_lettered), (0, 1));
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broker_without_a_place_gets_one_by_the_subscriptions_name() {
    let broker = MemoryBroker::new();
    let reduced = Reduced::new(&broker, Capabilities::none());
    let running = start(reduced.clone(), |scope| {
        scope
            .include(refuse)
            .retry(Retry::fixed(Duration::from_secs(1)).attempts(3));
    })
    .await;
    let before = SystemTime::now();

    let headers = some_headers();
    let message = Outgoing::new("orders", BYTES)
        .with_headers(&headers)
        .with_key(b"customer-7");
    broker.publisher().publish(&[message]).await.unwrap();
    within(broker.idle("orders")).await;

    assert_is_copy(&broker.published("orders.dead")[0], "3", before);
    assert!(reduced.beyond().is_empty(), "{:?}", reduced.beyond());
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_copy_is_confirmed_before_the_original_is_let_go() {
    // Given a graveyard without room.
    let broker = MemoryBroker::new()
        .capacity(1)
        .publish_deadline(Duration::from_secs(100));
    publish_ids(&broker, "graveyard", [0]).await;
    let running = start(broker.clone(), |scope| {
        scope.include(refuse).retry(Retry::never()).dead_letter("graveyard");
    })
    .await;

    // When a message ends there.
    publish(&broker, "orders", ["x"]).await;
    tokio::time::sleep(Duration::from_secs(50)).await;

    // Then it stays where it was until there is room.
    assert_eq!((broker.held("orders"), broker.counts("orders").acked), (1, 0));
    assert_eq!(health(&running).in_hand, 1);
    let other = start(broker.clone(), |scope| {
        scope.include(handler("graveyard", |_| std::future::ready(())));
    })
    .await;
    within(broker.idle("orders")).await;
    within(broker.idle("graveyard")).await;
    assert_eq!(broker.counts("graveyard").published, 2);
    other.shutdown().await.unwrap();
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_cannot_be_stored_loses_nothing_and_is_counted_once() {
    for capabilities in [None, Some(Capabilities::none())] {
        let (broker, tried) = (MemoryBroker::new(), Record::<u32>::default());
        let noted = tried.clone();
        let failing = handler("orders", move |given| {
            noted.add(given.attempt);
            std::future::ready(Err::<(), _>("no"))
        });
        let running = match capabilities {
            None => {
                start(broker.clone(), |scope| {
                    scope.include(failing).retry(Retry::never()).dead_letter("graveyard");
                })
                .await
            }
            Some(capabilities) => {
                start(Reduced::new(&broker, capabilities), |scope| {
                    scope.include(failing).retry(Retry::never()).dead_letter("graveyard");
                })
                .await
            }
        };

        publish_ids(&broker, "orders", [1]).await;
        broker.fail_next(Operation::Publish, 3, ErrorKind::Refused);
        within(broker.idle("orders")).await;

        // It is the dead letter that is tried again, not the handler.
        assert_eq!(tried.len(), 1);
        assert_eq!(broker.published("graveyard").len(), 1);
        assert_eq!(health(&running).dead_lettered, 1, "{capabilities:?}");
        running.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_place_of_the_brokers_own_keeps_the_message_until_there_is_room() {
    let broker = MemoryBroker::new().capacity(1);
    let running = start(broker.clone(), |scope| {
        scope.include(refuse).retry(Retry::never());
    })
    .await;
    publish(&broker, "orders", ["a"]).await;
    within(broker.idle("orders")).await;

    publish(&broker, "orders", ["b"]).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(broker.held("orders"), 1);
    let troubled = health(&running);
    assert_eq!(troubled.state, SubscriptionState::Degraded);
    assert!(troubled.reason.unwrap().contains("already keeps 1 dead letters"));

    assert_eq!(&broker.take_dead_letters("orders")[0].payload[..], b"a");
    within(broker.idle("orders")).await;
    assert_eq!(&broker.take_dead_letters("orders")[0].payload[..], b"b");
    assert!(running.health().is_ready());
    running.shutdown().await.unwrap();
}

/// One receipt that cannot be settled keeps no other from it.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_settled_keeps_nothing_else_waiting() {
    let broker = MemoryBroker::new().capacity(2);
    let running = start(broker.clone(), |scope| {
        let picky = handler("orders", |given| {
            let refused = given.text.starts_with("no");
            std::future::ready(if refused { Err("no") } else { Ok(()) })
        });
        scope.include(picky).retry(Retry::never());
    })
    .await;
    // Given a dead letter for which there is no room.
    publish(&broker, "orders", ["no", "no"]).await;
    within(broker.idle("orders")).await;
    publish(&broker, "orders", ["no"]).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(broker.held("orders"), 1);

    // When others come after it, then each leaves.
    for others in 1..=20 {
        publish(&broker, "orders", ["yes"]).await;
        within(broker.settled("orders", 2 + others)).await;
    }
    assert_eq!((broker.held("orders"), health(&running).in_hand), (1, 1));
    broker.take_dead_letters("orders");
    within(broker.idle("orders")).await;
    running.shutdown().await.unwrap();
}

/// C14: what cannot be read, by its fault.
async fn publish_undecodable(broker: &MemoryBroker) -> Vec<(&'static [u8], HeaderMap)> {
    let typed = |content_type: &[u8]| {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", content_type.to_vec());
        headers
    };
    let bad: Vec<(&'static [u8], HeaderMap)> = vec![
        (b"{\"id\": ", HeaderMap::new()),
        (b"\"seven\"", HeaderMap::new()),
        (b"", HeaderMap::new()),
        (b"7", typed(&[0xff, 0xfe])),
        (b"7", typed(b"application/x-unknown")),
        (&[0x00, 0xff, 0xc3, 0x28], typed(b"application/json")),
    ];
    for (payload, headers) in &bad {
        publish_with(broker, "orders", payload, headers).await;
    }
    bad
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_is_a_dead_letter_at_once_and_what_follows_is_handled() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let bad = publish_undecodable(&broker).await;
    publish_ids(&broker, "orders", 1..=100).await;
    let running = start_one(&broker, &seen, number, |_| {}).await;
    let begun = tokio::time::Instant::now();

    within(broker.idle("orders")).await;

    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(seen.all(), (1..=100).map(|id| (id, 1)).collect::<Vec<_>>());
    let dead = broker.dead_letters("orders");
    let kept: Vec<_> = dead
        .iter()
        .map(|dead| (&dead.payload[..], dead.headers.clone()))
        .collect();
    assert_eq!(kept, bad);
    for dead in &dead {
        assert_eq!((dead.letter.attempts, dead.letter.reason), (1, DeadReason::Undecodable));
        assert!(!dead.letter.error.is_empty());
    }
    assert!(
        dead[4].letter.error.contains("application/x-unknown"),
        "{}",
        dead[4].letter.error
    );
    let health = health(&running);
    assert_eq!(
        (health.acked, health.dead_lettered, health.retried, health.workers),
        (100, 6, 0, 1)
    );
    assert!(running.health().is_ready());
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_goes_to_the_named_place_with_bytes_and_headers_untouched() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let bad = publish_undecodable(&broker).await;
    publish_ids(&broker, "orders", 1..=100).await;
    let running = start_one(&broker, &seen, number, |orders| {
        orders.workers(4).dead_letter("graveyard");
    })
    .await;

    within(broker.idle("orders")).await;

    assert_eq!(seen.len(), 100);
    let mut kept: Vec<_> = broker
        .published("graveyard")
        .into_iter()
        .map(|copy| {
            let original: Vec<_> = copy
                .headers
                .iter()
                .filter(|(name, _)| !name.starts_with("dead-letter-"))
                .map(|(name, value)| (name.to_owned(), value.to_vec()))
                .collect();
            assert_eq!(copy.headers.get_str("dead-letter-reason"), Some("undecodable"));
            assert_eq!(copy.headers.get_str("dead-letter-attempts"), Some("1"));
            (copy.payload.to_vec(), original)
        })
        .collect();
    let mut expected: Vec<_> = bad
        .into_iter()
        .map(|(payload, headers)| {
            let headers = headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec()));
            (payload.to_vec(), headers.collect::<Vec<_>>())
        })
        .collect();
    kept.sort();
    expected.sort();
    assert_eq!(kept, expected);
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_is_retried_or_thrown_away_where_that_is_set() {
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let running = start_one(&broker, &seen, number, |orders| {
        orders
            .on_undecodable(OnUndecodable::Retry)
            .retry(Retry::fixed(Duration::from_secs(1)).attempts(3));
    })
    .await;
    publish(&broker, "orders", ["x"]).await;
    within(broker.idle("orders")).await;
    assert_eq!(broker.take_dead_letters("orders")[0].letter.attempts, 3);
    running.shutdown().await.unwrap();

    let running = start_one(&broker, &seen, number, |orders| {
        orders.on_undecodable(OnUndecodable::Drop);
    })
    .await;
    publish(&broker, "orders", ["x"]).await;
    within(broker.idle("orders")).await;
    assert!(broker.dead_letters("orders").is_empty());
    assert_eq!((health(&running).dropped, health(&running).acked), (1, 0));
    running.shutdown().await.unwrap();
}

#[subscriber("orders")]
async fn texts(_text: String) {}

#[tokio::test(start_paused = true)]
async fn an_app_that_cannot_read_a_message_yet_leaves_it_to_one_that_can() {
    // C21, adapted: of two apps on one queue only B knows the kind; while A, told to retry, is alone, it throws nothing away.
    let (broker, seen) = (MemoryBroker::new(), Seen::default());
    let a = start(broker.clone(), |scope| {
        scope
            .include(texts)
            .on_undecodable(OnUndecodable::Retry)
            .retry(Retry::fixed(Duration::from_secs(1)).forever());
    })
    .await;
    publish_ids(&broker, "orders", [7]).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!((broker.held("orders"), broker.dead_letters("orders").len()), (1, 0));

    a.shutdown().await.unwrap();
    let b = start_one(&broker, &seen, number, |_| {}).await;
    within(broker.idle("orders")).await;

    assert_eq!((seen.len(), broker.dead_letters("orders").len()), (1, 0));
    b.shutdown().await.unwrap();
}

#[subscriber("orders", reply = "receipts")]
async fn answer(id: u64, State(gate): State<Gate>) -> u64 {
    gate.pass().await;
    id
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_decided_in_the_last_moment_of_a_drain_is_stored_too() {
    // Given a settle that fails, so that what finishes meanwhile is confirmed after the last handler has ended.
    let (broker, gate) = (MemoryBroker::new(), Gate::closed());
    let reduced = Reduced::new(&broker, Capabilities::none().with_delay());
    let running = RustStream::new(AppInfo::new("test", "1.0.0"))
        .state(gate.clone())
        .with_broker(reduced.clone(), |scope| {
            scope
                .include(answer)
                .workers(2)
                .retry(Retry::never())
                .dead_letter("graveyard");
        })
        .start()
        .await
        .unwrap();
    reduced.next(Half::Settle, [Fault::Fail(ErrorKind::Unavailable)]);
    publish_ids(&broker, "orders", [1, 2]).await;
    gate.let_go(1);
    within(broker.arrived("receipts", 1)).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(running.health().subscriptions[0].state, SubscriptionState::Degraded);

    // When the other call's reply is not confirmed, and makes it a dead letter.
    broker.fail_next(Operation::Publish, 1, ErrorKind::Refused);
    running.stop();
    gate.let_go(1);
    running.shutdown().await.unwrap();

    // Then it is stored, and the message is not delivered again.
    assert_eq!((broker.published("graveyard").len(), broker.held("orders")), (1, 0));
}

#[subscriber("orders")]
async fn tell_a_novel(_payload: &[u8]) -> Result<(), String> {
    Err("é".repeat(100_000))
}

#[tokio::test(start_paused = true)]
async fn of_an_error_that_no_broker_could_store_the_beginning_is_kept() {
    let broker = MemoryBroker::new();
    let running = start(broker.clone(), |scope| {
        scope.include(tell_a_novel).retry(Retry::never());
    })
    .await;

    publish(&broker, "orders", ["1"]).await;
    within(broker.idle("orders")).await;

    let error = &broker.dead_letters("orders")[0].letter.error;
    assert_eq!(error.len(), 16 * 1024);
    assert!(error.chars().all(|letter| letter == 'é'));
    running.shutdown().await.unwrap();
}
