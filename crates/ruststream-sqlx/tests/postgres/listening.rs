//! New messages are told of, also of other processes; where that fails the polls find them.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ruststream::message::Outgoing;
use ruststream::transport::{Broker, Connection, Publish, Verdict};
use ruststream_sqlx::{Inbox, Postgres, SqlxBroker};
use sqlx::{AssertSqlSafe, Connection as _, Executor};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::place::Place;
use crate::support::{self, eventually, open, payloads, publish, publish_numbers, subscribe};

/// One that polls so seldom that only what is told can be found in time.
fn hard_of_seeing(place: &Place) -> SqlxBroker<Postgres> {
    place.broker().poll_interval(Duration::from_mins(1))
}

async fn listeners(place: &Place) -> i64 {
    let name = place.application_name();
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' AND query LIKE 'SELECT pg_notify%'"
    );
    place.number(&sql).await
}

#[tokio::test]
async fn messages_of_another_process_come_within_milliseconds() {
    let place = Place::new().await;
    let here = hard_of_seeing(&place).connect().await.unwrap();
    let there = place.connect().await;
    let mut orders = subscribe(&here, "orders").await;
    publish(&there, "orders", &[b"first"]).await;
    let first = orders.next(1).await;
    orders.ack(first).await;
    let mut waits = Vec::new();
    for _ in 0..50 {
        // It waits by then: its claim has found nothing.
        let claims = here.statistics().empty_claims;
        let (got, sent) = tokio::join!(orders.next(1), async {
            eventually(async || here.statistics().empty_claims, |now| *now > claims).await;
            publish(&there, "orders", &[b"x"]).await;
            Instant::now()
        });
        waits.push(sent.elapsed());
        orders.ack(got).await;
    }
    waits.sort();
    println!("handed out after {:?} (p50), {:?} (p90)", waits[25], waits[45]);
    assert!(waits[25] < Duration::from_millis(100), "{waits:?}");
}

/// Of a burst others are told once at its begin and once when the window ends: what came last is not left to the polls.
#[tokio::test]
async fn the_last_of_a_burst_is_told_too() {
    let place = Place::new().await;
    let here = hard_of_seeing(&place).connect().await.unwrap();
    let there = place.connect().await;
    let mut orders = subscribe(&here, "orders").await;
    publish_numbers(&there, "warm", 1).await;
    let reading = tokio::spawn(async move {
        for _ in 0..200 {
            let got = orders.next(1).await;
            orders.ack(got).await;
        }
    });
    for number in 0..200 {
        publish(&there, "orders", &[number.to_string().as_bytes()]).await;
    }
    tokio::time::timeout(support::PATIENCE, reading).await.unwrap().unwrap();
}

/// C35: no name is too long to be told, no payload travels in what is told, and a transaction tells once.
#[tokio::test]
async fn long_names_large_payloads_and_many_rows_disturb_no_publish() {
    let place = Place::new().await;
    let here = hard_of_seeing(&place).connect().await.unwrap();
    let there = place.connect().await;
    let name = "\u{1f980}".repeat(50);
    let mut queue = subscribe(&here, &name).await;
    let large = vec![7; 1024 * 1024];
    let reading = tokio::spawn(async move { queue.take(10_001).await.len() });
    there
        .publisher()
        .publish(&[Outgoing::new(&name, &large)])
        .await
        .unwrap();
    let small = vec![Outgoing::new(&name, b"x"); 10_000];
    there.publisher().publish(&small).await.unwrap();
    assert_eq!(reading.await.unwrap(), 10_001);
}

/// C01: what comes while the listener is away is found as soon as it is back.
#[tokio::test]
async fn a_listener_that_was_cut_off_misses_nothing() {
    let place = Place::new().await;
    let here = hard_of_seeing(&place).connect().await.unwrap();
    let there = place.connect().await;
    let mut orders = subscribe(&here, "orders").await;
    eventually(async || listeners(&place).await, |listeners| *listeners >= 1).await;
    for round in 0..3 {
        let reading = tokio::spawn(async move {
            let got = orders.take(10).await;
            (orders, got)
        });
        place.cut_listeners().await;
        publish_numbers(&there, "orders", 10).await;
        let start = Instant::now();
        let got;
        (orders, got) = tokio::time::timeout(support::PATIENCE, reading).await.unwrap().unwrap();
        assert!(
            start.elapsed() < Duration::from_secs(4),
            "round {round}: {:?}",
            start.elapsed()
        );
        orders.ack(got).await;
    }
}

#[tokio::test]
async fn rows_written_by_plain_sql_are_told_of_by_the_trigger() {
    let place = Place::new().await;
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let broker = hard_of_seeing(&place).trigger(true);
        starting.spawn(async move { broker.connect().await });
    }
    let mut connections: Vec<_> = starting.join_all().await.into_iter().map(Result::unwrap).collect();
    let here = connections.remove(0);
    let mut orders = subscribe(&here, "orders").await;
    eventually(async || listeners(&place).await, |listeners| *listeners >= 4).await;
    for payload in ["first", "second"] {
        let claims = here.statistics().empty_claims;
        let (got, ()) = tokio::join!(orders.next(1), async {
            eventually(async || here.statistics().empty_claims, |now| *now > claims).await;
            let insert = format!("INSERT INTO ruststream_messages (queue, payload) VALUES ('orders', '{payload}')");
            place.sql(&insert).await;
        });
        assert_eq!(payloads(&got), [payload]);
        orders.ack(got).await;
    }
    // The crate tells of its own publishes by itself.
    publish(&connections[0], "orders", &[b"third"]).await;
    assert_eq!(payloads(&orders.next(1).await), ["third"]);
}

/// C35: where others cannot be told of it, a message is stored all the same.
#[tokio::test]
async fn a_publish_does_not_depend_on_being_told_of() {
    let place = Place::new().await;
    let connection = place
        .broker()
        .poll_interval(Duration::from_millis(50))
        .connect()
        .await
        .unwrap();
    // One that refuses, as a full queue of notifications makes the server's own do.
    place
        .sql(
            "CREATE FUNCTION pg_notify(text, text) RETURNS void LANGUAGE plpgsql \
             AS $$ BEGIN RAISE EXCEPTION 'too many notifications' USING ERRCODE = '54000'; END $$",
        )
        .await;
    let shadowing = SqlxBroker::postgres(place.with_its_own_functions())
        .connect()
        .await
        .unwrap();
    publish_numbers(&shadowing, "orders", 3).await;
    let got = subscribe(&connection, "orders").await.take(3).await;
    assert_eq!(payloads(&got), support::numbers(0..3));
}

/// `PgBouncer` in transaction mode, in front of the server that the tests share.
struct PgBouncer {
    child: Child,
    port: u16,
    _place: TempDir,
}

impl PgBouncer {
    fn to(server: u16) -> Self {
        servers::program("/usr/sbin/pgbouncer", &["pgbouncer"]).unwrap();
        let place = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let users = place.path().join("users.txt");
        fs::write(&users, "\"postgres\" \"\"\n").unwrap();
        let settings = place.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = 3\n\
             ignore_startup_parameters = extra_float_digits,search_path,options\n",
            users.display()
        );
        fs::write(&settings, text).unwrap();
        let mut command = Command::new("/usr/sbin/pgbouncer");
        // It refuses to run as root.
        if std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0 {
            command.args(["-u", "postgres"]);
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(place.path(), open).unwrap();
        }
        let child = command
            .arg(&settings)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            port,
            _place: place,
        }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// C01: a pooler that hands each transaction to another connection is served, by polls.
#[tokio::test]
async fn behind_a_pooler_in_transaction_mode_all_works_by_polls() {
    let place = Place::in_a_database().await;
    let pooler = PgBouncer::to(place.port());
    let url = place.through_pooler(pooler.port);
    let broker = SqlxBroker::postgres(&url)
        .prepared_statements(false)
        .poll_interval(Duration::from_millis(200));
    let connection = eventually(async || broker.connect().await.ok(), Option::is_some)
        .await
        .unwrap();
    let mut orders = open(&connection, &Inbox::queue("orders").lease(Duration::from_secs(5))).await;
    let other = broker.connect().await.unwrap();
    for round in 0..8 {
        publish_numbers(&other, "orders", 40).await;
        let start = Instant::now();
        let got = orders.take(40).await;
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        let mut lost = Vec::new();
        ruststream::transport::Settle::renew(&mut orders.settle, &mut lost)
            .await
            .unwrap();
        assert!(lost.is_empty());
        if round == 0 {
            orders.end(got, Verdict::Release).await;
            let again = orders.take(40).await;
            assert_eq!(payloads(&again), support::numbers(0..40));
            orders.ack(again).await;
        } else {
            orders.ack(got).await;
        }
    }
    assert_eq!(connection.queue_counts("orders").await.unwrap().ready, 0);
    connection.close().await;
}

/// C10: a claim finds what is due by an index, whatever else is there.
#[tokio::test]
async fn a_deep_queue_is_claimed_from_as_fast_as_a_shallow_one() {
    let place = Place::new().await;
    let connection = place.connect().await;
    let drain = async || {
        publish_numbers(&connection, "orders", 2_000).await;
        let mut orders = subscribe(&connection, "orders").await;
        let start = Instant::now();
        let mut left = 2_000;
        while left > 0 {
            let got = orders.next(50).await;
            left -= got.len();
            orders.ack(got).await;
        }
        start.elapsed()
    };
    let shallow = drain().await.min(drain().await);
    let mut plain = place.plain().await;
    for (rows, values) in [(200_000, "0, now() + interval '1 day'"), (20_000, "1, now()")] {
        let insert = format!(
            "INSERT INTO ruststream_messages (queue, payload, state, due_at) \
             SELECT 'orders', 'x', {values} FROM generate_series(1, {rows})"
        );
        plain.execute(AssertSqlSafe(insert)).await.unwrap();
    }
    plain.close().await.unwrap();
    let deep = drain().await.min(drain().await);
    println!("2000 rows: {shallow:?}, behind 220,000 others {deep:?}");
    assert!(
        deep < shallow * 3 + Duration::from_millis(200),
        "{deep:?} after {shallow:?}"
    );
}
