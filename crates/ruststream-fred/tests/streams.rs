//! Groups, claims, delays and retention on a real server.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
#![allow(
    clippy::unchecked_time_subtraction,
    reason = "what is compared happened in this order, or the test is to fail"
)]

mod support;

use std::time::{Duration, SystemTime};

use ruststream::message::{OptionSet, Outgoing};
use ruststream::prelude::*;
use ruststream::transport::{
    Broker as _, Connection as _, DeadLetter, DeadReason, Delivery as _, ErrorKind, Fetch as _, Publish as _,
    Settle as _, Source as _, Verdict,
};
use ruststream_fred::{
    EntryId, Form, RedisBroker, RedisCommands, RedisList, RedisPublish, RedisStream, Retention, Start, StreamDelivery,
    StreamEntry,
};
use support::{PATIENCE, Reader, Server, eventually, numbers, payloads, publish};
use tokio::time::{Instant, sleep};

const GROUP: &str = "ruststream";

fn dead_letter() -> Verdict {
    Verdict::DeadLetter(Box::new(DeadLetter {
        reason: DeadReason::Rejected,
        error: "late".to_owned(),
        attempts: 1,
        source: "orders".to_owned(),
        at: SystemTime::now(),
    }))
}

#[tokio::test]
async fn a_group_begins_where_its_source_says() {
    let server = Server::start();
    let connection = server.connect().await;
    publish(&connection, "orders", &["1", "2", "3"]).await;
    let first = server.cli(&["XRANGE", "orders", "-", "+", "COUNT", "1"]);
    let first: EntryId = first.lines().next().unwrap().trim().parse().unwrap();

    for (group, start, expected) in [
        ("all", Start::Beginning, vec!["1", "2", "3"]),
        ("some", Start::After(first), vec!["2", "3"]),
        ("new", Start::Now, vec!["4"]),
    ] {
        let source = RedisStream::new("orders").group(group).start(start);
        let mut reader = Reader::open(source, &connection).await;
        if group == "new" {
            publish(&connection, "orders", &["4"]).await;
        }
        let taken = reader.take(expected.len()).await;
        assert_eq!(payloads(&taken), expected, "{group}");
        reader.ack(taken).await;
    }
}

#[tokio::test]
async fn a_lost_group_is_made_again_and_nothing_is_lost() {
    for loss in [
        &["XGROUP", "DESTROY", "orders", GROUP][..],
        &["DEL", "orders"],
        &["FLUSHALL"],
    ] {
        let server = Server::start();
        let connection = server.connect().await;
        let mut reader = Reader::open(RedisStream::new("orders"), &connection).await;
        publish(&connection, "orders", &["acked", "in hand"]).await;
        let mut taken = reader.take(2).await;
        let in_hand = taken.split_off(1);
        reader.ack(taken).await;
        assert!(reader.is_quiet_for(Duration::from_millis(100)).await);

        server.cli(loss);
        let before = server.commands();
        let keeps_entries = loss[0] == "XGROUP";
        publish(&connection, "orders", &["after"]).await;
        let expected: &[&str] = if keeps_entries {
            &["in hand", "after"]
        } else {
            &["after"]
        };
        let again = reader.take(expected.len()).await;

        assert_eq!(payloads(&again), expected, "{loss:?}");
        let commands = server.commands() - before;
        assert!(commands < 100, "{loss:?}: {commands} commands in a loop");
        reader.ack(again).await;
        // The late ack of what was in hand before harms no one.
        reader.end(in_hand, Verdict::Ack).await;
        assert_eq!(server.pending("orders", GROUP), (0, 0), "{loss:?}");
    }
}

/// C42
#[tokio::test]
async fn entries_deleted_while_pending_are_settled() {
    let server = Server::start();
    let connection = server.connect().await;
    let source = RedisStream::new("orders").lease(Duration::from_millis(300));
    let mut dying = Reader::open(source.clone(), &connection).await;
    publish(&connection, "orders", &numbers(0..100)).await;
    let taken = dying.take(100).await;
    for delivery in &taken[..50] {
        let entry: &StreamEntry = delivery.fields().downcast_ref().unwrap();
        server.cli(&["XDEL", "orders", &entry.id().to_string()]);
    }
    drop((taken, dying));

    let mut reader = Reader::open(source, &connection).await;
    let again = reader.take(50).await;

    assert_eq!(payloads(&again), numbers(50..100));
    reader.ack(again).await;
    assert!(reader.is_quiet_for(Duration::from_millis(700)).await);
    assert_eq!(server.pending("orders", GROUP), (0, 0));
}

/// C42, of retries
#[tokio::test]
async fn retries_of_deleted_entries_are_settled() {
    let server = Server::start();
    let connection = server.connect().await;
    let mut reader = Reader::open(RedisStream::new("orders"), &connection).await;
    publish(&connection, "orders", &["gone", "gone while it waits", "kept"]).await;
    let mut taken = reader.take(3).await;
    let id = |delivery: &ruststream_fred::StreamDelivery| {
        delivery
            .fields()
            .downcast_ref::<StreamEntry>()
            .unwrap()
            .id()
            .to_string()
    };
    let (first, second) = (id(&taken[0]), id(&taken[1]));
    let rest = taken.split_off(1);
    let after = Duration::from_millis(200);

    server.cli(&["XDEL", "orders", &first]);
    reader.end(taken, Verdict::Retry { after }).await;
    reader.end(rest, Verdict::Retry { after }).await;
    assert_eq!(server.pending("orders", GROUP), (0, 2));
    server.cli(&["XDEL", "orders", &second]);

    let again = reader.take(1).await;
    assert_eq!(payloads(&again), ["kept"]);
    reader.ack(again).await;
    assert_eq!(server.pending("orders", GROUP), (0, 0));
    assert_eq!(
        server
            .cli(&["ZCARD", "{orders}:ruststream:group:ruststream:due"])
            .trim(),
        "0"
    );
}

/// C41
async fn retention_is_kept(retention: Retention, bound: std::ops::RangeInclusive<u64>) {
    const ALL: usize = 5_000;
    const DUE: &str = "{orders}:ruststream:group:ruststream:due";
    let server = Server::start();
    let connection = server.connect().await;
    let source = RedisStream::new("orders").retention(retention);
    let mut reader = Reader::open(source, &connection).await;
    let mut other = Reader::open(RedisStream::new("orders").group("slow"), &connection).await;
    publish(&connection, "orders", &["held", "retried"]).await;
    let mut held = reader.take(2).await;
    let retried = held.split_off(1);
    let after = Duration::from_hours(1);
    reader.end(retried, Verdict::Retry { after }).await;
    for part in numbers(0..ALL).chunks(1000) {
        publish(&connection, "orders", part).await;
        let taken = reader.take(part.len()).await;
        reader.ack(taken).await;
    }

    // The other group has acked nothing.
    assert!(reader.is_quiet_for(Duration::from_millis(1500)).await);
    assert_eq!(server.length("orders"), ALL as u64 + 2);
    let slow = other.take(ALL + 2).await;
    other.ack(slow).await;
    // Two are not acked: one is in hand, one waits for its retry.
    assert!(reader.is_quiet_for(Duration::from_millis(1500)).await);
    let oldest = server.cli(&["XRANGE", "orders", "-", "+", "COUNT", "2"]);
    assert!(oldest.contains("held") && oldest.contains("retried"), "{oldest}");
    assert_eq!(reader.ack(held).await.stale, 0);
    let member = server.cli(&["ZRANGE", DUE, "0", "0"]);
    server.cli(&["ZADD", DUE, "XX", "0", member.trim()]);
    let again = reader.take(1).await;
    assert_eq!((payloads(&again), again[0].attempt()), (vec!["retried".to_owned()], 2));
    reader.ack(again).await;

    assert!(reader.is_quiet_for(Duration::from_millis(2500)).await);
    let length = server.length("orders");
    assert!(bound.contains(&length), "it left {length} entries");
}

#[tokio::test]
async fn acked_entries_are_removed_and_no_others() {
    retention_is_kept(Retention::Acked, 0..=0).await;
}

#[tokio::test]
async fn the_newest_entries_are_kept_and_those_that_are_not_acked() {
    retention_is_kept(Retention::Length(500), 500..=800).await;
}

#[tokio::test]
async fn young_entries_are_kept_and_those_that_are_not_acked() {
    retention_is_kept(Retention::Age(Duration::from_millis(1)), 0..=0).await;
}

/// C38
#[tokio::test]
async fn orphans_are_reclaimed_in_time_and_the_dead_consumer_is_removed() {
    const LEASE: Duration = Duration::from_millis(800);
    let server = Server::start();
    let dying_connection = server.connect().await;
    let source = RedisStream::new("orders").lease(LEASE);
    let mut dying = Reader::open(source.clone(), &dying_connection).await;
    publish(&dying_connection, "orders", &numbers(0..20)).await;
    let taken = dying.take(20).await;
    let died = Instant::now();
    drop((taken, dying));
    dying_connection.close().await;

    let connection = server.connect().await;
    let mut reader = Reader::open(source, &connection).await;
    let again = reader.take(20).await;

    let took = died.elapsed();
    assert!(
        took > LEASE - Duration::from_millis(50),
        "{took:?}: they were held until the lease ended"
    );
    assert!(took < LEASE + Duration::from_secs(1), "{took:?}");
    assert!(
        again
            .iter()
            .all(|delivery| delivery.attempt() == 2 && delivery.is_unfinished())
    );
    reader.ack(again).await;
    let consumers = || {
        server
            .cli(&["XINFO", "CONSUMERS", "orders", GROUP])
            .matches("name")
            .count()
    };
    assert_eq!(consumers(), 2);
    assert!(reader.is_quiet_for(LEASE * 3).await);
    assert_eq!(consumers(), 1);
    reader.fetch.close().await.unwrap();
    reader.settle.close().await.unwrap();
    assert_eq!(consumers(), 0);
}

/// C38
#[tokio::test]
async fn an_idle_group_asks_for_little() {
    let server = Server::start();
    let connection = server.connect().await;
    let others = server.connect().await;
    let source = RedisStream::new("orders").lease(Duration::from_secs(4));
    let mut one = Reader::open(source.clone(), &connection).await;
    let mut two = Reader::open(source, &others).await;
    publish(&connection, "orders", &["held"]).await;
    let held = one.take(1).await;
    let (claims, commands, began) = (server.calls("xautoclaim"), server.commands(), Instant::now());

    let watch = Duration::from_secs(3);
    let (quiet, too) = tokio::join!(one.is_quiet_for(watch), two.is_quiet_for(watch));

    assert!(quiet && too);
    let seconds = began.elapsed().as_secs_f64();
    let claims = (server.calls("xautoclaim") - claims) as f64;
    assert!(
        claims <= seconds + 1.0,
        "{claims} claims in {seconds} s by two consumers"
    );
    assert!(claims >= 1.0, "nobody looks for orphans");
    // Commands of scripts count here: a look is some ten, once a second; a read waits two seconds.
    let commands = (server.commands() - commands) as f64 / seconds / 2.0;
    assert!(commands < 25.0, "an idle consumer makes {commands} commands a second");
    one.ack(held).await;
}

#[tokio::test]
async fn what_another_process_keeps_back_comes_at_its_time_to_an_idle_reader() {
    const DELAY: Duration = Duration::from_millis(250);
    let server = Server::start();
    let connection = server.connect().await;
    let others = server.connect().await;
    let mut reader = Reader::open(RedisStream::new("orders"), &connection).await;
    let mut late = Vec::new();
    for _ in 0..9 {
        // It waits, and knows of nothing.
        assert!(reader.is_quiet_for(Duration::from_millis(50)).await);
        let published = Instant::now();
        let message = Outgoing::new("orders", b"later").with_delay(DELAY);
        others.publisher().publish(&[message]).await.unwrap();
        let taken = reader.take(1).await;
        let took = published.elapsed();
        assert!(took >= DELAY, "{took:?}");
        late.push(took - DELAY);
        reader.ack(taken).await;
    }
    late.sort();
    assert!(late[4] < Duration::from_millis(100), "{late:?}");
}

#[tokio::test]
async fn what_another_process_gives_back_comes_at_once() {
    let server = Server::start();
    let connection = server.connect().await;
    let others = server.connect().await;
    let mut giving = Reader::open(RedisStream::new("orders"), &others).await;
    publish(&connection, "orders", &["one"]).await;
    let taken = giving.take(1).await;
    let mut reader = Reader::open(RedisStream::new("orders"), &connection).await;
    assert!(reader.is_quiet_for(Duration::from_millis(200)).await);

    let released = Instant::now();
    giving.end(taken, Verdict::Release).await;
    let again = reader.take(1).await;

    assert_eq!(again[0].attempt(), 1);
    assert!(
        released.elapsed() < Duration::from_millis(300),
        "{:?}",
        released.elapsed()
    );
    reader.ack(again).await;
}

#[tokio::test]
async fn late_verdicts_of_every_kind_settle_nothing() {
    const LEASE: Duration = Duration::from_millis(300);
    let server = Server::start();
    let connection = server.connect().await;
    let source = RedisStream::new("orders").lease(LEASE);
    for verdict in [
        Verdict::Ack,
        Verdict::Release,
        Verdict::Retry { after: Duration::ZERO },
        Verdict::Return { attempts: 7 },
        dead_letter(),
    ] {
        let mut slow = Reader::open(source.clone(), &connection).await;
        let mut next = Reader::open(source.clone(), &connection).await;
        publish(&connection, "orders", &["contended"]).await;
        let late = slow.take(1).await;
        let owned = next.take(1).await;

        assert_eq!(slow.end(late, verdict.clone()).await.stale, 1, "{verdict:?}");

        assert_eq!(server.pending("orders", GROUP), (1, 0), "{verdict:?}");
        assert_eq!(server.length("orders.dead"), 0, "{verdict:?}");
        assert_eq!(next.ack(owned).await.stale, 0, "{verdict:?}");
    }
}

#[tokio::test]
async fn any_client_can_write_messages_and_read_them() {
    let server = Server::start();
    let connection = server.connect().await;
    let mut reader = Reader::open(RedisStream::new("orders"), &connection).await;
    server.cli(&["XADD", "orders", "5-1", "payload", "{\"id\":7}", "region", "eu"]);
    server.cli(&["XADD", "orders", "5-2", "id", "7"]);

    let taken = reader.take(2).await;

    assert_eq!(taken[0].payload(), b"{\"id\":7}");
    assert_eq!(taken[0].headers().get_str("region"), Some("eu"));
    // One without a payload is no error here: the codec says what it thinks of an empty one.
    assert_eq!(taken[1].payload(), b"");
    assert_eq!(taken[1].headers().get_str("id"), Some("7"));
    let entry: &StreamEntry = taken[1].fields().downcast_ref().unwrap();
    let id = EntryId { millis: 5, sequence: 2 };
    assert_eq!((entry.id(), entry.stream(), entry.group()), (id, "orders", GROUP));
    assert!(!entry.consumer().is_empty());
    assert_eq!(taken[1].attempt(), 1);
    reader.ack(taken).await;
}

#[tokio::test]
async fn what_cannot_work_is_said_with_the_fix() {
    let server = Server::start();
    let connection = server.connect().await;
    server.cli(&["SET", "orders", "a text"]);
    let error = RedisStream::new("orders")
        .open(&connection)
        .await
        .map(drop)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("another type"), "{error}");
    let error = connection
        .publisher()
        .publish(&[Outgoing::new("orders", b"1")])
        .await
        .unwrap_err();
    assert_eq!(error.first().kind(), ErrorKind::Incompatible);
    // In a pipeline it concerns its own message alone.
    let messages = ["orders", "others", "orders"].map(|name| Outgoing::new(name, b"1"));
    let error = connection.publisher().publish(&messages).await.unwrap_err();
    assert!(error.for_message(0).is_some() && error.for_message(1).is_none() && error.for_message(2).is_some());
    assert_eq!(server.length("others"), 1);

    server.cli(&[
        "ACL",
        "SETUSER",
        "reader",
        "on",
        ">secret",
        "~*",
        "+@read",
        "+@connection",
    ]);
    let url = format!("127.0.0.1:{}", server.instance.port());
    let denied = RedisBroker::standalone(format!("redis://reader:wrong@{url}"))
        .connect()
        .await
        .map(drop)
        .unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    let reader = RedisBroker::standalone(format!("redis://{url}"))
        .credentials("reader", "secret")
        .connect()
        .await
        .unwrap();
    let denied = reader
        .publisher()
        .publish(&[Outgoing::new("others", b"1")])
        .await
        .unwrap_err();
    assert_eq!(denied.first().kind(), ErrorKind::Denied, "{denied}");
    assert!(!denied.to_string().contains("secret"), "{denied}");
}

#[tokio::test]
async fn a_full_server_is_an_error_that_passes() {
    let server = Server::start();
    let connection = server.connect().await;
    let mut reader = Reader::open(RedisStream::new("orders"), &connection).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = connection
        .publisher()
        .publish(&[Outgoing::new("orders", b"1")])
        .await
        .unwrap_err();
    assert_eq!(error.first().kind(), ErrorKind::Busy, "{error}");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    publish(&connection, "orders", &["2"]).await;
    let taken = reader.take(1).await;
    assert_eq!(payloads(&taken), ["2"]);
    reader.ack(taken).await;
}

/// A read that came while its subscription fetched nothing is looked at before it is handed out.
#[tokio::test]
async fn what_lay_in_the_link_for_longer_than_its_lease_is_not_handed_out() {
    const LEASE: Duration = Duration::from_millis(300);
    let server = Server::start();
    let connection = server.connect().await;
    let source = RedisStream::new("orders").lease(LEASE);
    let mut paused = Reader::open(source.clone(), &connection).await;
    // Its read waits in the server, and no one awaits it.
    while !server.cli(&["INFO", "clients"]).contains("blocked_clients:1") {
        assert!(paused.is_quiet_for(Duration::from_millis(30)).await);
    }
    publish(&connection, "orders", &["one"]).await;
    eventually(|| server.pending("orders", GROUP), |pending| *pending == (1, 0)).await;
    let mut reader = Reader::open(source, &connection).await;
    let taken = reader.take(1).await;
    assert_eq!(taken[0].attempt(), 2);

    assert!(paused.is_quiet_for(Duration::from_millis(100)).await);
    assert_eq!(reader.ack(taken).await.stale, 0);
    sleep(LEASE).await;
    assert!(paused.is_quiet_for(LEASE).await);
}

#[tokio::test]
async fn queued_commands_travel_with_acks_and_with_nothing_else() {
    for is_atomic in [false, true] {
        let server = Server::start();
        let connection = server.connect().await;
        let source = RedisStream::new("orders");
        let source = if is_atomic { source.atomic() } else { source.pipeline() };
        let mut reader = Reader::open(source, &connection).await;
        publish(&connection, "orders", &numbers(0..50)).await;
        let mut taken = reader.take(50).await;
        for delivery in &taken {
            let entry: &StreamEntry = delivery.fields().downcast_ref().unwrap();
            let commands = entry.commands().unwrap();
            commands.queue("INCR", ["count"]).unwrap();
            commands
                .publish(&Outgoing::new("receipts", delivery.payload()))
                .unwrap();
        }
        let dead = taken.split_off(40);
        let retried = taken.split_off(30);
        let released = taken.split_off(20);
        assert_eq!(reader.ack(taken).await.stale, 0);
        reader.end(released, Verdict::Release).await;
        reader
            .end(
                retried,
                Verdict::Retry {
                    after: Duration::from_hours(1),
                },
            )
            .await;
        reader.end(dead, dead_letter()).await;

        assert_eq!(server.cli(&["GET", "count"]).trim(), "20", "atomic: {is_atomic}");
        assert_eq!(server.length("receipts"), 20);
        assert_eq!(server.calls("incr"), 20, "what was not acked ran nothing");
        assert_eq!(server.pending("orders", GROUP), (0, 20));
    }
}

/// Fails in its first attempt at an odd number, and always at 9.
#[subscriber("orders")]
async fn tally(order: u64, commands: RedisCommands, context: Context<'_>) -> Result<(), String> {
    commands.queue("INCR", ["count"]).map_err(|error| error.to_string())?;
    if order == 9 || order % 2 == 1 && context.attempt() == 1 {
        return Err("it is to fail".to_owned());
    }
    Ok(())
}

/// Neither a retry in its place nor a dead letter in a place of the author's own runs what a failed attempt queued.
#[tokio::test]
async fn commands_of_failed_attempts_are_not_run() {
    for form in [Form::Stream, Form::List] {
        let server = Server::start();
        let connection = server.connect().await;
        let running = RustStream::new(AppInfo::new("counts", "1.0.0"))
            .with_broker(server.broker(), |broker| {
                let subscription = broker.include(tally);
                match form {
                    Form::List => subscription.source(RedisList::new("orders").pipeline()),
                    _ => subscription.source(RedisStream::new("orders").pipeline()),
                };
                let retry = Retry::fixed(Duration::from_millis(5)).attempts(2);
                subscription
                    .ordered_by(OrderBy::message(|order: &u64| *order))
                    .retry(retry)
                    .dead_letter("graveyard");
            })
            .start()
            .await
            .unwrap();
        let mut options = OptionSet::new();
        options.insert(RedisPublish::default().form(form));
        let bodies = numbers(0..10);
        let messages = bodies
            .iter()
            .map(|body| Outgoing::new("orders", body.as_bytes()).with_options(&options));
        connection
            .publisher()
            .publish(&messages.collect::<Vec<_>>())
            .await
            .unwrap();
        let settled = |running: &ruststream::app::Running| {
            let health = &running.health().subscriptions[0];
            (health.acked, health.dead_lettered, health.in_hand)
        };
        eventually(|| settled(&running), |settled| *settled == (9, 1, 0)).await;
        running.shutdown().await.unwrap();
        assert_eq!(server.cli(&["GET", "count"]).trim(), "9", "{form:?}");
    }
}

/// Where the answer was lost, what was done is not done again.
#[tokio::test]
async fn commands_whose_answer_is_lost_are_not_run_twice() {
    let server = Server::start();
    let proxy = servers::Proxy::to(server.instance.port()).unwrap();
    let broker = RedisBroker::standalone(format!("redis://127.0.0.1:{}", proxy.port()))
        .command_timeout(Duration::from_millis(400));
    let connection = broker.connect().await.unwrap();
    let mut reader = Reader::open(RedisStream::new("orders").atomic(), &connection).await;
    publish(&connection, "orders", &numbers(0..11)).await;
    let taken = reader.take(11).await;
    let mut finished = Vec::new();
    for delivery in taken {
        let entry: &StreamEntry = delivery.fields().downcast_ref().unwrap();
        entry.commands().unwrap().queue("INCR", ["count"]).unwrap();
        finished.push((delivery.into_receipt(), Verdict::Ack));
    }
    // The first makes the script known.
    let mut first = finished.split_off(10);
    reader.settle.settle(&mut first).await.unwrap();
    proxy.lose_answers();
    assert!(reader.settle.settle(&mut finished).await.is_err());
    assert_eq!(finished.len(), 10);
    eventually(
        || server.cli(&["GET", "count"]).trim().to_owned(),
        |count| count == "11",
    )
    .await;
    proxy.heal();

    while let Err(error) = reader.settle.settle(&mut finished).await {
        assert!(error.is_transient(), "{error}");
    }

    assert_eq!(server.cli(&["GET", "count"]).trim(), "11");
    assert_eq!(server.pending("orders", GROUP), (0, 0));
}

#[tokio::test]
async fn a_group_goes_on_where_it_is_set() {
    let server = Server::start();
    let connection = server.connect().await;
    let mut reader = Reader::open(RedisStream::new("orders"), &connection).await;
    publish(&connection, "orders", &["1", "2"]).await;
    sleep(Duration::from_millis(20)).await;
    let between = SystemTime::now();
    publish(&connection, "orders", &["3"]).await;
    let taken = reader.take(3).await;
    let first = taken[0].fields().downcast_ref::<StreamEntry>().unwrap().id();
    reader.ack(taken).await;
    for (to, expected) in [
        (Start::Beginning, vec!["1", "2", "3"]),
        (Start::Since(between), vec!["3"]),
        (Start::After(first), vec!["2", "3"]),
    ] {
        connection.seek("orders", GROUP, to).await.unwrap();
        let again = reader.take(expected.len()).await;
        assert_eq!(payloads(&again), expected, "{to:?}");
        reader.ack(again).await;
    }
    publish(&connection, "orders", &["skipped"]).await;
    let skipped = reader.take(1).await;
    reader.end(skipped, Verdict::Release).await;
    connection.seek("orders", GROUP, Start::Now).await.unwrap();
    let again = reader.take(1).await;
    assert_eq!(payloads(&again), ["skipped"], "what was in hand stays so");
    reader.ack(again).await;
    assert!(connection.seek("orders", "nobody", Start::Now).await.is_err());
}

#[tokio::test]
async fn an_entry_tells_how_far_its_group_lags_behind() {
    let server = Server::start();
    let connection = server.connect().await;
    publish(&connection, "orders", &numbers(0..100)).await;
    let mut reader = Reader::open(RedisStream::new("orders").lease(Duration::from_secs(1)), &connection).await;
    let lag = |delivery: &StreamDelivery| {
        let entry: &StreamEntry = delivery.fields().downcast_ref().unwrap();
        entry.lag()
    };
    let first = reader.next(10).await;
    assert_eq!(lag(&first[0]), Some(100), "as it was before the first read");
    let deadline = Instant::now() + PATIENCE;
    let mut taken = Vec::new();
    while lag(&first[0]) != Some(0) {
        assert!(Instant::now() < deadline, "{:?}", lag(&first[0]));
        if let Ok(Ok(())) = tokio::time::timeout(Duration::from_millis(50), reader.fetch.fetch(100, &mut taken)).await {
        }
    }
    reader.ack(first).await;
    reader.ack(taken).await;
}

/// After an outage that was longer than the lease, what is in hand may be reclaimed before it is renewed: it is not handled twice at once.
#[tokio::test]
async fn what_is_in_hand_is_not_reclaimed_by_who_has_it() {
    const LEASE: Duration = Duration::from_millis(400);
    let server = Server::start();
    let connection = server.connect().await;
    let mut reader = Reader::open(RedisStream::new("orders").lease(LEASE), &connection).await;
    publish(&connection, "orders", &["one", "two"]).await;
    let mut taken = reader.take(2).await;
    sleep(LEASE + LEASE / 4).await;
    // It looks for orphans meanwhile, and no one renews.
    assert!(reader.is_quiet_for(2 * LEASE).await);
    assert!(server.calls("xautoclaim") > 0);

    // Who renews has lost nothing, and nothing was counted.
    let mut lost = Vec::new();
    reader.settle.renew(&mut lost).await.unwrap();
    assert!(lost.is_empty());
    let second = taken.split_off(1);
    assert_eq!(
        reader.end(second, Verdict::Retry { after: Duration::ZERO }).await.stale,
        0
    );
    let again = reader.take(1).await;
    assert_eq!((payloads(&again), again[0].attempt()), (vec!["two".to_owned()], 2));
    assert_eq!(reader.ack(again).await.stale, 0);
    assert_eq!(reader.ack(taken).await.stale, 0);
    assert_eq!(server.pending("orders", GROUP), (0, 0));
}

/// What a lost answer had brought comes as soon as the link is back, not when its lease ends, and what is in hand does not.
#[tokio::test]
async fn what_a_lost_answer_brought_comes_with_the_next_link() {
    let server = Server::start();
    let proxy = servers::Proxy::to(server.instance.port()).unwrap();
    let broker = RedisBroker::standalone(format!("redis://127.0.0.1:{}", proxy.port()))
        .command_timeout(Duration::from_millis(400));
    let connection = broker.connect().await.unwrap();
    let direct = server.connect().await;
    let mut reader = Reader::open(RedisStream::new("orders"), &connection).await;
    publish(&direct, "orders", &["in hand"]).await;
    let in_hand = reader.take(1).await;
    while !server.cli(&["INFO", "clients"]).contains("blocked_clients:1") {
        assert!(reader.is_quiet_for(Duration::from_millis(30)).await);
    }
    proxy.lose_answers();
    publish(&direct, "orders", &["one", "two"]).await;
    eventually(|| server.pending("orders", GROUP), |pending| pending.0 > 1).await;
    proxy.heal();

    let began = Instant::now();
    let taken = reader.take(2).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(payloads(&taken), ["one", "two"]);
    assert!(taken.iter().all(|delivery| delivery.attempt() == 1));
    assert!(reader.is_quiet_for(Duration::from_secs(4)).await, "twice");
    assert_eq!(reader.ack(taken).await.stale, 0);
    assert_eq!(reader.ack(in_hand).await.stale, 0);
    assert_eq!(server.pending("orders", GROUP), (0, 0));
}

/// Acks free memory: what a full server refuses keeps none of them waiting.
#[tokio::test]
async fn a_server_without_memory_takes_acks_while_it_refuses_dead_letters() {
    let server = Server::start();
    let connection = server.connect().await;
    let mut reader = Reader::open(RedisStream::new("orders"), &connection).await;
    publish(&connection, "orders", &numbers(0..10)).await;
    let mut finished: Vec<_> = Vec::new();
    for (place, delivery) in reader.take(10).await.into_iter().enumerate() {
        let verdict = if place == 0 { dead_letter() } else { Verdict::Ack };
        finished.push((delivery.into_receipt(), verdict));
    }

    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = reader.settle.settle(&mut finished).await.unwrap_err();
    assert!(refused.is_transient(), "{refused}");
    assert_eq!(finished.len(), 1, "acks are done");
    assert_eq!(server.pending("orders", GROUP), (1, 0));

    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    reader.settle.settle(&mut finished).await.unwrap();
    assert_eq!(server.pending("orders", GROUP), (0, 0));
    assert_eq!(server.length("orders.dead"), 1);
}
