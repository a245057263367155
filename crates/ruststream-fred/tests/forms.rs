//! Lists and channels on a real server.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod support;

use std::time::{Duration, SystemTime};

use ruststream::message::{HeaderMap, OptionSet, Outgoing};
use ruststream::transport::{
    Connection as _, DeadLetter, DeadReason, Delivery as _, Fetch, Publish as _, Settle, Settled, Source, Verdict,
};
use ruststream_fred::{
    ChannelFetch, EntryId, Form, ItemDelivery, ItemSettle, RedisChannel, RedisConnection, RedisItem, RedisList,
    RedisPublish,
};
use servers::Proxy;
use support::{PATIENCE, Server, cli, eventually, numbers};
use tokio::time::{Instant, timeout};

/// Both halves of a subscription to a list or a channel.
struct Reader<F> {
    fetch: F,
    settle: ItemSettle,
}

impl<F: Fetch<Delivery = ItemDelivery>> Reader<F> {
    async fn open<S>(source: S, connection: &RedisConnection) -> Self
    where
        S: Source<Connection = RedisConnection, Fetch = F, Settle = ItemSettle>,
    {
        let (fetch, settle) = source.open(connection).await.unwrap();
        Self { fetch, settle }
    }

    async fn take(&mut self, count: usize) -> Vec<ItemDelivery> {
        let mut taken = Vec::new();
        let taking = async {
            while taken.len() < count {
                let room = count - taken.len();
                if let Err(error) = self.fetch.fetch(room, &mut taken).await {
                    assert!(error.is_transient(), "{error}");
                    while self.fetch.recover().await.is_err() {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
            }
        };
        let in_time = timeout(PATIENCE, taking).await.is_ok();
        assert!(in_time, "only {} of {count} came", taken.len());
        taken
    }

    async fn is_quiet_for(&mut self, time: Duration) -> bool {
        let mut taken = Vec::new();
        timeout(time, self.fetch.fetch(1, &mut taken)).await.is_err()
    }

    async fn end(&mut self, taken: Vec<ItemDelivery>, verdict: Verdict) -> Settled {
        let mut finished = taken
            .into_iter()
            .map(|one| (one.into_receipt(), verdict.clone()))
            .collect();
        self.settle.settle(&mut finished).await.unwrap()
    }
}

fn payloads(taken: &[ItemDelivery]) -> Vec<String> {
    let text = |one: &ItemDelivery| String::from_utf8(one.payload().to_vec()).unwrap();
    taken.iter().map(text).collect()
}

async fn publish<P: AsRef<[u8]>>(connection: &RedisConnection, form: Form, name: &str, payloads: &[P]) {
    let mut options = OptionSet::new();
    options.insert(RedisPublish::default().form(form));
    let messages: Vec<_> = payloads
        .iter()
        .map(|payload| Outgoing::new(name, payload.as_ref()).with_options(&options))
        .collect();
    connection.publisher().publish(&messages).await.unwrap();
}

fn rejected() -> Verdict {
    Verdict::DeadLetter(Box::new(DeadLetter {
        reason: DeadReason::Rejected,
        error: "no such customer".to_owned(),
        attempts: 3,
        source: "jobs".to_owned(),
        at: SystemTime::now(),
    }))
}

#[tokio::test]
async fn lists_are_those_of_other_programs() {
    let server = Server::start();
    let connection = server.connect().await;
    let mut reader = Reader::open(RedisList::new("jobs"), &connection).await;
    assert!(reader.is_quiet_for(Duration::from_millis(50)).await);
    server.cli(&["LPUSH", "jobs", "{\"id\":1}"]);
    server.cli(&["LPUSH", "jobs", "{\"id\":2}"]);
    let taken = reader.take(2).await;
    assert_eq!(payloads(&taken), ["{\"id\":1}", "{\"id\":2}"]);
    let item: &RedisItem = taken[0].fields().downcast_ref().unwrap();
    assert_eq!(item.name(), "jobs");
    assert_eq!(reader.end(taken, Verdict::Ack).await.stale, 0);

    publish(&connection, Form::List, "others", &["plain"]).await;
    assert_eq!(server.cli(&["RPOP", "others"]).trim(), "plain");
    assert_eq!(server.cli(&["KEYS", "*held*"]).trim(), "");
}

/// C38: the place of a consumer that was killed goes back whole, in its order, once.
#[tokio::test]
async fn what_a_dead_consumer_held_goes_back_and_nothing_is_doubled() {
    const LEASE: Duration = Duration::from_millis(600);
    let server = Server::start();
    let dying = server.connect().await;
    let source = RedisList::new("jobs").lease(LEASE);
    let mut reader = Reader::open(source.clone(), &dying).await;
    publish(&dying, Form::List, "jobs", &numbers(0..40)).await;
    let taken = reader.take(20).await;
    let died = Instant::now();
    drop((taken, reader));
    dying.close().await;

    let connection = server.connect().await;
    let others = server.connect().await;
    let mut one = Reader::open(source.clone(), &connection).await;
    let mut two = Reader::open(source, &others).await;
    let rest = one.take(20).await;
    assert_eq!(payloads(&rest), numbers(20..40));
    assert_eq!(one.end(rest, Verdict::Ack).await.stale, 0);
    let (first, second) = tokio::join!(one.take(10), two.take(10));

    assert!(died.elapsed() < LEASE + Duration::from_secs(1), "{:?}", died.elapsed());
    let mut all = payloads(&first);
    all.extend(payloads(&second));
    all.sort_by_key(|number| number.parse::<u32>().unwrap());
    assert_eq!(all, numbers(0..20));
    assert!(
        first
            .iter()
            .chain(&second)
            .all(|one| one.attempt() == 2 && one.is_unfinished())
    );
    assert_eq!(one.end(first, Verdict::Ack).await.stale, 0);
    assert_eq!(two.end(second, Verdict::Ack).await.stale, 0);
    assert!(one.is_quiet_for(LEASE * 2).await);
    assert_eq!(server.cli(&["KEYS", "*held*"]).trim(), "");
}

#[tokio::test]
async fn late_verdicts_on_a_list_settle_nothing() {
    const LEASE: Duration = Duration::from_millis(300);
    let server = Server::start();
    let connection = server.connect().await;
    let source = RedisList::new("jobs").lease(LEASE);
    for verdict in [
        Verdict::Ack,
        Verdict::Release,
        Verdict::Retry { after: Duration::ZERO },
        rejected(),
    ] {
        let mut slow = Reader::open(source.clone(), &connection).await;
        let mut next = Reader::open(source.clone(), &connection).await;
        publish(&connection, Form::List, "jobs", &["contended"]).await;
        let late = slow.take(1).await;
        let owned = next.take(1).await;
        assert_eq!(slow.end(late, verdict.clone()).await.stale, 1, "{verdict:?}");
        assert_eq!(server.cli(&["LLEN", "jobs.dead"]).trim(), "0");
        assert_eq!(next.end(owned, Verdict::Ack).await.stale, 0, "{verdict:?}");
    }
}

#[tokio::test]
async fn a_message_of_a_long_list_costs_what_one_of_a_short_list_costs() {
    let server = Server::start();
    let connection = server.connect().await;
    let mut reader = Reader::open(RedisList::new("jobs"), &connection).await;
    let mut slow = Vec::new();
    for backlog in [1_000, 100_000] {
        server.cli(&[
            "EVAL",
            "for i = 1, tonumber(ARGV[1]) do redis.call('LPUSH', 'jobs', i) end",
            "0",
            &backlog.to_string(),
        ]);
        server.cli(&["CONFIG", "RESETSTAT"]);
        let mut in_hand = Vec::new();
        for _ in 0..20 {
            in_hand.extend(reader.take(20).await);
        }
        reader.end(in_hand, Verdict::Ack).await;
        let stats = server.cli(&["INFO", "commandstats"]);
        let spent: f64 = ["rpop", "hset", "hdel"]
            .iter()
            .map(|command| {
                let line = stats
                    .lines()
                    .find(|line| line.starts_with(&format!("cmdstat_{command}:")))
                    .unwrap();
                let usec = line.split("usec=").nth(1).unwrap().split(',').next().unwrap();
                usec.parse::<f64>().unwrap()
            })
            .sum();
        slow.push(spent);
        server.cli(&["DEL", "jobs"]);
    }
    assert!(slow[1] < slow[0] * 10.0 + 1_000.0, "microseconds: {slow:?}");
}

#[tokio::test]
async fn delays_of_other_processes_come_in_time_on_every_form() {
    const DELAY: Duration = Duration::from_millis(250);
    let server = Server::start();
    let connection = server.connect().await;
    let others = server.connect().await;
    let mut list = Reader::open(RedisList::new("jobs"), &connection).await;
    let mut channel = Reader::open(RedisChannel::new("news"), &connection).await;
    let mut late = Vec::new();
    for round in 0..9 {
        let (form, name) = if round % 2 == 0 {
            (Form::List, "jobs")
        } else {
            (Form::Channel, "news")
        };
        assert!(list.is_quiet_for(Duration::from_millis(30)).await);
        assert!(channel.is_quiet_for(Duration::from_millis(30)).await);
        let mut options = OptionSet::new();
        options.insert(RedisPublish::default().form(form));
        let message = Outgoing::new(name, b"later").with_options(&options).with_delay(DELAY);
        let published = Instant::now();
        others.publisher().publish(&[message]).await.unwrap();
        let taken = if round % 2 == 0 {
            list.take(1).await
        } else {
            channel.take(1).await
        };
        late.push(published.elapsed().checked_sub(DELAY).expect("not early"));
        let reader_ack = Verdict::Ack;
        if round % 2 == 0 {
            list.end(taken, reader_ack).await;
        } else {
            channel.end(taken, reader_ack).await;
        }
    }
    late.sort();
    assert!(late[4] < Duration::from_millis(100), "{late:?}");
}

#[tokio::test]
async fn channels_reach_all_who_listen_by_name_and_by_pattern() {
    let server = Server::start();
    let connection = server.connect().await;
    let mut by_name = Reader::open(RedisChannel::new("news.eu"), &connection).await;
    let mut by_pattern = Reader::open(RedisChannel::pattern("news.*"), &connection).await;
    let mut sharded = Reader::open(RedisChannel::sharded("news.eu"), &connection).await;
    publish(&connection, Form::Channel, "news.us", &["us"]).await;
    publish(&connection, Form::Channel, "news.eu", &["eu"]).await;
    publish(&connection, Form::ShardedChannel, "news.eu", &["shard"]).await;

    assert_eq!(payloads(&by_name.take(1).await), ["eu"]);
    let matched = by_pattern.take(2).await;
    assert_eq!(payloads(&matched), ["us", "eu"]);
    let from: Vec<&str> = matched
        .iter()
        .map(|one| one.fields().downcast_ref::<RedisItem>().unwrap().name())
        .collect();
    assert_eq!(from, ["news.us", "news.eu"]);
    assert_eq!(payloads(&sharded.take(1).await), ["shard"]);
}

#[tokio::test]
async fn a_retried_message_of_a_pattern_comes_again_and_a_dead_one_is_kept() {
    let server = Server::start();
    let connection = server.connect().await;
    let mut reader = Reader::open(RedisChannel::pattern("news.*"), &connection).await;
    let mut headers = HeaderMap::new();
    headers.append("region", "eu");
    let mut options = OptionSet::new();
    options.insert(RedisPublish::default().form(Form::Channel));
    let message = Outgoing::new("news.eu", b"one")
        .with_headers(&headers)
        .with_options(&options);
    connection.publisher().publish(&[message]).await.unwrap();
    let taken = reader.take(1).await;
    let after = Duration::from_millis(100);
    let retried = Instant::now();
    reader.end(taken, Verdict::Retry { after }).await;
    let again = reader.take(1).await;
    assert!(retried.elapsed() >= after);
    assert_eq!(
        (again[0].attempt(), again[0].headers().get_str("region")),
        (2, Some("eu"))
    );
    reader.end(again, rejected()).await;

    let letters = connection.dead_letters().list("news.*", 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!((&*letters[0].payload, letters[0].attempts), (&b"one"[..], 3));
    assert_eq!(
        (letters[0].reason.as_str(), letters[0].error.as_str()),
        ("rejected", "no such customer")
    );
    assert_eq!(letters[0].headers, headers);
}

#[tokio::test]
async fn a_slow_consumer_loses_the_oldest_and_is_told_how_many() {
    let server = Server::start();
    let connection = server.connect().await;
    let mut reader = Reader::open(RedisChannel::new("news").buffer(64), &connection).await;
    publish(&connection, Form::Channel, "news", &numbers(0..1000)).await;
    // All of them have come to this process.
    let seen = || server.calls("publish");
    eventually(seen, |calls| *calls >= 1000).await;
    connection.ping().await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut taken = reader.take(64).await;
    assert_eq!(payloads(&taken).last().unwrap(), "999");
    assert_eq!(connection.dropped(), 1000 - 64);
    assert_eq!(payloads(&taken.split_off(63)), ["999"]);
}

#[tokio::test]
async fn a_channel_is_subscribed_again_after_a_cut() {
    let server = Server::start();
    let proxy = Proxy::to(server.instance.port()).unwrap();
    let broker = ruststream_fred::RedisBroker::standalone(format!("redis://127.0.0.1:{}", proxy.port()));
    let connection = ruststream::transport::Broker::connect(&broker).await.unwrap();
    let mut by_name: Reader<ChannelFetch> = Reader::open(RedisChannel::new("news"), &connection).await;
    let mut by_pattern = Reader::open(RedisChannel::pattern("n*"), &connection).await;
    assert!(by_name.is_quiet_for(Duration::from_millis(20)).await);
    proxy.cut();
    let port = server.instance.port();
    let until = Instant::now() + PATIENCE;
    let publishing = tokio::task::spawn_blocking(move || {
        // Until both hear it.
        while cli(port, &["PUBLISH", "news", "after"]).trim() != "2" && Instant::now() < until {}
    });
    let (named, matched) = tokio::join!(by_name.take(1), by_pattern.take(1));
    assert_eq!(
        (payloads(&named), payloads(&matched)),
        (vec!["after".to_owned()], vec!["after".to_owned()])
    );
    publishing.await.unwrap();
}

#[tokio::test]
async fn dead_letters_are_listed_shown_replayed_and_purged() {
    use ruststream_fred::RedisStream;
    let server = Server::start();
    let connection = server.connect().await;
    let mut stream = support::Reader::open(RedisStream::new("orders"), &connection).await;
    let mut list = Reader::open(RedisList::new("jobs"), &connection).await;
    support::publish(&connection, "orders", &numbers(0..5)).await;
    publish(&connection, Form::List, "jobs", &numbers(0..5)).await;
    let taken = stream.take(5).await;
    stream.end(taken, rejected()).await;
    let taken = list.take(5).await;
    list.end(taken, rejected()).await;
    let dead = connection.dead_letters();

    let letters = dead.list("orders", 3).await.unwrap();
    assert_eq!(
        letters.iter().map(|letter| &*letter.payload).collect::<Vec<_>>(),
        [b"0", b"1", b"2"]
    );
    let id: EntryId = letters[1].id.parse().unwrap();
    assert_eq!(dead.show("orders", id).await.unwrap().unwrap(), letters[1]);
    assert!(dead.replay("orders", id).await.unwrap());
    assert!(!dead.replay("orders", id).await.unwrap());
    let again = stream.take(1).await;
    assert_eq!((again[0].payload(), again[0].attempt()), (&b"1"[..], 1));
    assert!(again[0].headers().is_empty(), "{:?}", again[0].headers());
    stream.ack(again).await;
    let id: EntryId = letters[0].id.parse().unwrap();
    assert!(dead.purge("orders", id).await.unwrap());
    assert_eq!(dead.replay_all("orders").await.unwrap(), 3);
    let again = stream.take(3).await;
    assert_eq!(support::payloads(&again), ["2", "3", "4"]);
    stream.ack(again).await;

    assert_eq!(dead.replay_all("jobs").await.unwrap(), 5);
    let again = list.take(5).await;
    assert_eq!(payloads(&again), numbers(0..5));
    list.end(again, rejected()).await;
    assert_eq!(dead.purge_all("jobs").await.unwrap(), 5);
    assert!(dead.list("jobs", 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_id_of_ones_own_is_taken_once_and_a_length_bounds_the_stream() {
    let server = Server::start();
    let connection = server.connect().await;
    let mut options = OptionSet::new();
    options.insert(RedisPublish::default().id(EntryId { millis: 7, sequence: 1 }));
    let message = Outgoing::new("orders", b"1").with_options(&options);
    connection.publisher().publish(&[message]).await.unwrap();
    assert!(connection.publisher().publish(&[message]).await.is_err());
    assert_eq!(server.length("orders"), 1);

    let mut options = OptionSet::new();
    options.insert(RedisPublish::default().max_length(100));
    let message = Outgoing::new("readings", b"1").with_options(&options);
    for _ in 0..10 {
        connection.publisher().publish(&[message; 100]).await.unwrap();
    }
    assert!(server.length("readings") <= 200, "{}", server.length("readings"));
}

#[tokio::test]
async fn many_that_are_published_in_one_call_keep_their_order() {
    let server = Server::start();
    let connection = server.connect().await;
    publish(&connection, Form::List, "jobs", &numbers(0..1500)).await;
    let mut sent = numbers(0..1500);
    sent.reverse();
    let there = server.cli(&["LRANGE", "jobs", "0", "-1"]);
    assert_eq!(there.lines().collect::<Vec<_>>(), sent);
}

/// Each takes ten, acks six of them with a command, and retries, gives back, and sets aside the others.
#[tokio::test]
async fn queued_commands_of_lists_and_channels_travel_with_acks_and_with_nothing_else() {
    let server = Server::start();
    let connection = server.connect().await;
    let queue = |delivery: &ItemDelivery| {
        let item: &RedisItem = delivery.fields().downcast_ref().unwrap();
        let commands = item.commands().unwrap();
        commands.queue("INCR", [format!("{}:count", item.name())]).unwrap();
        commands
            .publish(&Outgoing::new(&format!("{}:receipts", item.name()), delivery.payload()))
            .unwrap();
    };
    let jobs = Reader::open(RedisList::new("jobs").pipeline(), &connection).await;
    let plain = Reader::open(RedisList::new("plain").at_most_once().atomic(), &connection).await;
    for (mut reader, name, form) in [(jobs, "jobs", Form::List), (plain, "plain", Form::PlainList)] {
        publish(&connection, form, name, &numbers(0..10)).await;
        let mut taken = reader.take(10).await;
        taken.iter().for_each(queue);
        let dead = taken.split_off(9);
        let retried = taken.split_off(8);
        let released = taken.split_off(6);
        assert_eq!(reader.end(taken, Verdict::Ack).await.stale, 0);
        reader.end(released, Verdict::Release).await;
        let after = Duration::from_hours(1);
        reader.end(retried, Verdict::Retry { after }).await;
        reader.end(dead, rejected()).await;
        assert_eq!(server.cli(&["GET", &format!("{name}:count")]).trim(), "6", "{name}");
        assert_eq!(server.length(&format!("{name}:receipts")), 6, "{name}");
    }
    let mut news = Reader::open(RedisChannel::new("news").atomic(), &connection).await;
    publish(&connection, Form::Channel, "news", &numbers(0..10)).await;
    let taken = news.take(10).await;
    taken.iter().for_each(queue);
    news.end(taken, Verdict::Ack).await;
    assert_eq!(server.cli(&["GET", "news:count"]).trim(), "10");
}

#[tokio::test]
async fn commands_of_a_message_that_another_consumer_took_over_do_not_run() {
    let server = Server::start();
    let connection = server.connect().await;
    let lease = Duration::from_millis(200);
    let source = || RedisList::new("jobs").lease(lease).atomic();
    let mut slow = Reader::open(source(), &connection).await;
    publish(&connection, Form::List, "jobs", &["one"]).await;
    let late = slow.take(1).await;
    let mut quick = Reader::open(source(), &connection).await;
    let taken = quick.take(1).await;
    for delivery in late.iter().chain(&taken) {
        let item: &RedisItem = delivery.fields().downcast_ref().unwrap();
        item.commands().unwrap().queue("INCR", ["count"]).unwrap();
    }
    assert_eq!(slow.end(late, Verdict::Ack).await.stale, 1);
    assert_eq!(server.cli(&["EXISTS", "count"]).trim(), "0");
    assert_eq!(quick.end(taken, Verdict::Ack).await.stale, 0);
    assert_eq!(server.cli(&["GET", "count"]).trim(), "1");
}
