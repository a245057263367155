//! What is wrong with settings is told before anything connects, with the name and the fix.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::time::Duration;

use ruststream::prelude::*;
use ruststream::transport::{Broker, ErrorKind, Source};
use ruststream_lapin::{Binding, Declaration, Exchange, LapinBroker, Queue, StreamOffset};

#[test]
fn settings_of_a_broker_that_cannot_be_are_named() {
    let good = || LapinBroker::new("amqp://localhost/shop");
    assert!(good().check().is_ok());
    for (broker, named) in [
        (LapinBroker::new("localhost"), "neither with amqp://"),
        (LapinBroker::new("http://localhost"), "amqp://"),
        (LapinBroker::new("amqp://localhost:none/"), "URL"),
        (LapinBroker::new("amqp://localhost/"), "virtual host"),
        (good().connect_timeout(Duration::ZERO), "connect_timeout"),
        (good().call_timeout(Duration::ZERO), "call_timeout"),
        (good().publish_timeout(Duration::ZERO), "publish_timeout"),
        (good().heartbeat(Duration::from_hours(24)), "heartbeat"),
        (good().connection_name("x".repeat(300)), "255"),
        (good().declare(Exchange::topic("")), "exchange"),
        (good().declare(Exchange::topic("amq.mine")), "amq."),
        (
            good()
                .declare(Exchange::topic("events"))
                .declare(Exchange::fanout("events")),
            "`events` is declared twice",
        ),
        (
            good()
                .declare(Queue::new("orders"))
                .declare(Queue::new("orders").max_length(3)),
            "`orders` is declared twice, with another `x-max-length`",
        ),
        (good().declare(Queue::new("orders").exclusive().quorum()), "exclusive"),
        (good().declare(Binding::new("events", "")), "queue to bind"),
        (
            good().declare(Binding::new("events", "q").routing_key("k".repeat(256))),
            "routing key",
        ),
    ] {
        let error = broker.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
}

#[tokio::test]
async fn connecting_and_the_command_check_tell_the_same() {
    let wrong = LapinBroker::new("amqp://user:secret@localhost/").call_timeout(Duration::ZERO);
    let told = wrong.check().unwrap_err().to_string();
    assert_eq!(wrong.connect().await.unwrap_err().to_string(), told);
    let app = RustStream::new(AppInfo::new("shop", "1"))
        .with_broker(wrong, |_| {})
        .build();
    let error = app.check().unwrap_err();
    assert!(format!("{error:?}{error}").contains(&told), "{error:?}");
    assert!(!format!("{error:?}{error}").contains("secret"), "{error:?}");
}

#[test]
fn options_of_a_queue_that_contradict_each_other_are_named() {
    let queue = || Queue::new("orders");
    let minute = Duration::from_mins(1);
    for (queue, named) in [
        (Queue::new(""), "empty"),
        (Queue::new("x".repeat(201)), "201 bytes"),
        (Queue::new("amq.orders"), "amq."),
        (Queue::server_named("orders"), ".bound_to(..)"),
        (
            Queue::server_named("o")
                .bound_to("e", "k")
                .declaration(Declaration::Passive),
            ".declaration(..)",
        ),
        (queue().delivery_limit(3), "delivery limit"),
        (queue().quorum().exclusive(), "exclusive"),
        (queue().quorum().auto_delete(), "auto-delete"),
        (queue().quorum().max_priority(3), "priorities"),
        (queue().quorum().lazy(), "lazy"),
        (queue().stream().exclusive(), "exclusive"),
        (queue().stream().auto_delete(), "auto-delete"),
        (queue().stream().max_priority(3), "priorities"),
        (queue().stream().message_ttl(minute), ".max_age(..)"),
        (queue().stream().max_length(3), ".max_length_bytes(..)"),
        (queue().stream().expires(minute), "unused"),
        (queue().stream().dead_letter_exchange("", "x"), "exchange"),
        (queue().stream().single_active_consumer(), ".reader(..)"),
        (queue().stream().delivery_limit(3), "delivery limit"),
        (queue().stream().reader(""), "reader"),
        (queue().stream().transactional(), "transactional"),
        (queue().offset(StreamOffset::Next), ".offset(..)"),
        (queue().quorum().reader("audit"), ".reader(..)"),
        (queue().untracked(), ".untracked(..)"),
        (queue().max_age(minute), ".max_age(..)"),
        (queue().reject_publish(), ".max_length(..)"),
    ] {
        let error = queue.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
    for good in [
        queue()
            .stream()
            .reader("audit")
            .offset(StreamOffset::At(7))
            .max_age(minute)
            .max_length_bytes(1 << 30),
        queue()
            .quorum()
            .delivery_limit(3)
            .max_length(5)
            .message_ttl(minute)
            .single_active_consumer(),
        queue()
            .max_priority(9)
            .lazy()
            .max_length(5)
            .reject_publish()
            .expires(minute)
            .auto_delete(),
        Queue::server_named("events").bound_to("events", "#"),
        Queue::new("amq.theirs").declaration(Declaration::Passive),
    ] {
        good.check().unwrap();
    }
}
