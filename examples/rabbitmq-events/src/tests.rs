//! The service without a server, its exchange included; and on a real one.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use ruststream::publish::Publisher;
use ruststream::testing::TestApp;
use ruststream::transport::PublishError;
use ruststream_lapin::LapinBroker;
use servers::Kind;

use super::*;

#[tokio::test]
async fn what_cannot_be_paid_back_is_given_up_after_three_attempts() {
    let books = Books::default();
    let test = TestApp::start_paused(service("amqp://nowhere", books.clone()))
        .await
        .unwrap();
    test.publish("shop.refunds", &Event { order: 1, cents: 500 })
        .await
        .unwrap();
    test.publish("shop.refunds", &Event { order: 2, cents: 0 })
        .await
        .unwrap();
    test.settled().await;
    assert_eq!(*books.refunds.lock().unwrap(), [Event { order: 1, cents: 500 }]);
    let dead = test.dead_letters("shop.refunds");
    assert_eq!((dead.len(), dead[0].attempts), (1, 3));
}

#[tokio::test]
async fn an_event_is_led_to_the_queues_that_are_bound_to_it() {
    let test = TestApp::start(service("amqp://nowhere", Books::default()))
        .await
        .unwrap();
    let event = Event { order: 7, cents: 500 };
    let events = || LapinPublish::to_exchange(EVENTS);
    test.publish("order.cancelled", &event).options(events()).await.unwrap();
    test.settled().await;
    // The refund is an event, too.
    assert_eq!(test.calls::<Event>("refund").len(), 1);
    assert_eq!(test.calls::<Event>("audit").len(), 2);
    assert_eq!(test.published::<Event>("order.refunded"), std::slice::from_ref(&event));

    let unbound = test.publish("customer.created", &event).options(events()).await;
    assert!(unbound.unwrap_err().first().is_unroutable());
}

async fn publish(publisher: &Publisher, kind: &'static str, event: &Event) -> Result<(), PublishError> {
    publisher
        .publish(kind, event)
        .options(LapinPublish::to_exchange(EVENTS))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_reach_the_queues_that_are_bound() {
    let url = servers::shared(Kind::Rabbit).unwrap();
    let books = Books::default();
    let running = service(&url, books.clone()).start().await.unwrap();
    let publisher = running.publisher();
    publish(&publisher, "order.created", &Event { order: 7, cents: 500 })
        .await
        .unwrap();
    publish(&publisher, "order.cancelled", &Event { order: 7, cents: 500 })
        .await
        .unwrap();
    let unbound = publish(&publisher, "customer.created", &Event { order: 0, cents: 0 }).await;
    assert!(unbound.unwrap_err().first().is_unroutable());

    let done = async {
        while books.audit.lock().unwrap().len() < 3 || books.refunds.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), done)
        .await
        .expect("not handled");
    assert_eq!(
        *books.audit.lock().unwrap(),
        ["order.created 7", "order.cancelled 7", "order.refunded 7"]
    );
    running.shutdown().await.unwrap();
}

/// The service says itself what it needs: without a server, the wiring can be checked.
#[test]
fn the_wiring_is_sound() {
    assert!(service("amqp://nowhere", Books::default()).check().is_ok());
    assert_eq!(
        ruststream::transport::Broker::label(&LapinBroker::new("amqp://u:p@h/v")),
        "rabbitmq h:5672/v"
    );
}
