//! What is checked before an app starts, and what is said of it.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::future::ready;

use common::{Reduced, app, batch_handler, handler};
use ruststream::app::{AppError, Subscription};
use ruststream::handler::Subscriber;
use ruststream::memory::Queue;
use ruststream::prelude::*;
use ruststream::transport::Capabilities;

fn orders() -> impl Subscriber<()> {
    handler("orders", |_| ready(()))
}

fn refused<H: Subscriber<()>>(handler: H, set: impl FnOnce(&mut Subscription<MemoryBroker>)) -> AppError {
    let error = app(MemoryBroker::new(), |scope| set(scope.include(handler)))
        .build()
        .check()
        .unwrap_err();
    assert!(error.is_wiring() && !error.is_broker() && !error.is_hook());
    error
}

#[test]
fn a_setting_that_cannot_be_is_refused_with_the_place_and_the_fix() {
    type Set = fn(&mut Subscription<MemoryBroker>);
    let cases: [(Set, &str); 5] = [
        (
            |orders| {
                orders.workers(0);
            },
            "`.workers(0)` cannot be zero: a subscription needs at least one worker; to stop it for a while, pause it",
        ),
        (
            |orders| {
                orders.prefetch(0);
            },
            "`.prefetch(0)` cannot be zero: leave it out, and it follows the speed of the handler",
        ),
        (
            |orders| {
                orders.timeout(Duration::ZERO);
            },
            "`.timeout(0)` cannot be zero: leave it out for no time-out",
        ),
        (
            |orders| {
                orders.batch(3);
            },
            "`.batch(..)` is set, but the handler takes one message: let its first parameter be `&[T]`",
        ),
        (
            |orders| {
                orders.batch_age(Duration::from_secs(1));
            },
            "`.batch_age(..)` is set, but the handler takes one message: let its first parameter be `&[T]`",
        ),
    ];
    for (set, text) in cases {
        let place = "`closure` on memory, subscription `orders`";
        assert_eq!(refused(orders(), set).to_string(), format!("{place}: {text}"));
    }
}

#[test]
fn a_batch_that_cannot_fill_is_refused() {
    let batches = || batch_handler("orders", |_| ready(()));
    let zero = refused(batches(), |orders| {
        orders.batch(0);
    });
    assert!(
        zero.to_string().contains("a batch holds at least one message"),
        "{zero}"
    );
    let small = refused(batches(), |orders| {
        orders.batch(10).prefetch(9);
    });
    assert!(
        small
            .to_string()
            .contains("`.prefetch(9)` is smaller than `.batch(10)`"),
        "{small}"
    );
    let unset = refused(batches(), |orders| {
        orders.prefetch(9);
    });
    assert!(
        unset
            .to_string()
            .contains("`.prefetch(9)` is smaller than `.batch(64)`"),
        "{unset}"
    );
}

#[test]
fn two_handlers_of_one_name_are_refused() {
    let error = app(MemoryBroker::new(), |scope| {
        scope.include(orders());
        scope.include(orders());
    })
    .build()
    .check()
    .unwrap_err();
    assert!(error.to_string().contains("`closure` reads the same name"), "{error}");
}

#[test]
fn one_name_on_two_brokers_is_fine_and_so_are_two_sources_of_ones_own() {
    let lines = app(MemoryBroker::new(), |scope| {
        scope.include(orders()).source(Queue::broadcast("prices"));
        scope.include(orders()).source(Queue::broadcast("prices"));
    })
    .with_broker(Reduced::new(&MemoryBroker::new(), Capabilities::none()), |scope| {
        scope.include(handler("prices", |_| ready(()))).workers(4);
    })
    .build()
    .check()
    .unwrap();
    assert_eq!(
        lines,
        [
            "memory: prices -> closure (workers 1)",
            "memory: prices -> closure (workers 1)",
            "reduced: prices -> closure (workers 4)"
        ]
    );
}

#[test]
fn a_name_that_the_broker_cannot_have_is_refused() {
    for name in ["", "a.>.b"] {
        let error = refused(handler(name, |_| ready(())), |_| {});
        assert!(
            error.to_string().contains(&format!("subscription `{name}`: ")),
            "{error}"
        );
    }
}

#[test]
fn a_source_that_cannot_be_is_refused_before_anything_is_connected() {
    let error = refused(orders(), |orders| {
        orders.source(Queue::broadcast("prices.*"));
    });
    assert!(error.to_string().contains("use `Queue::new`"), "{error}");
}

#[test]
fn dead_letters_to_the_queue_that_they_come_from_are_refused() {
    let error = refused(orders(), |orders| {
        orders.dead_letter("orders");
    });
    assert!(error.to_string().contains("`.dead_letter(\"orders\")`"), "{error}");
}

#[test]
fn a_dead_letter_place_without_a_name_is_refused() {
    let error = refused(orders(), |orders| {
        orders.dead_letter("");
    });
    assert!(error.to_string().contains("`.dead_letter(\"\")`"), "{error}");
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let error = app(MemoryBroker::new(), |scope| {
        scope.include(orders()).workers(0);
        scope.include(handler("payments", |_| ready(()))).prefetch(0);
    })
    .build()
    .check()
    .unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("2 problems:") && text.contains("`.workers(0)`") && text.contains("`.prefetch(0)`"),
        "{text}"
    );
}

#[tokio::test]
async fn an_app_without_a_broker_is_refused_and_one_without_a_handler_is_not() {
    let error = RustStream::new(AppInfo::new("test", "1.0.0"))
        .start()
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the app has no broker: add one with `.with_broker(..)`"
    );

    let running = app(MemoryBroker::new(), |_| {}).start().await.unwrap();
    assert!(running.health().is_ready());
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_told_before_anything_starts() {
    let hooks = common::Record::<&str>::default();
    let noted = hooks.clone();
    let error = app(MemoryBroker::new(), |scope| {
        scope.include(orders()).workers(0);
    })
    .on_startup(move || {
        noted.add("started");
        ready(Ok(()))
    })
    .start()
    .await
    .unwrap_err();
    assert!(error.is_wiring());
    assert!(hooks.all().is_empty());
}

#[subscriber("orders", reply = "receipts")]
async fn answer(id: u64) -> u64 {
    id
}

#[test]
fn a_good_app_is_described_by_a_line_for_each_subscription() {
    let app = app(MemoryBroker::new(), |scope| {
        scope.include(answer).workers(8);
        scope.include(handler("payments", |_| ready(())));
    })
    .build();
    assert_eq!(
        app.check().unwrap(),
        [
            "memory: orders -> answer -> receipts (workers 8)",
            "memory: payments -> closure (workers 1)"
        ]
    );
    assert_eq!((app.info().name(), app.info().version()), ("test", "1.0.0"));
}
