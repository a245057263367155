//! One subscription, several types of message. Where the payload says which one it is, serde's own tag tells them apart; where a
//! header says it, `#[derive(Message)]` does.

use ruststream::prelude::*;

/// Told apart by the field `type` of the payload.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Payment {
    Card { order: u64, cents: u64 },
    Voucher { order: u64, code: String },
}

/// Books a payment, whatever it was made with.
#[subscriber("payments", reply = "paid")]
async fn book(payment: Payment) -> Result<u64, String> {
    match payment {
        Payment::Card { cents: 0, order } => Err(format!("order {order} is paid with nothing")),
        Payment::Voucher { code, .. } if code.is_empty() => Err("the voucher has no code".to_owned()),
        Payment::Card { order, .. } | Payment::Voucher { order, .. } => Ok(order),
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Placed {
    order: u64,
    customer: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Cancelled {
    order: u64,
    reason: String,
}

/// Told apart by the header `event`, as services write it that put nothing but the event itself into the payload.
#[derive(Debug, Message)]
#[message(header = "event")]
enum OrderEvent {
    #[message("order.placed")]
    Placed(Placed),
    #[message("order.cancelled")]
    Cancelled(Cancelled),
    /// What else is published there is none of this service's business.
    #[message(other)]
    Other,
}

/// Writes a mail for each event that a customer wants to know of.
#[subscriber("order-events", reply = "mails")]
async fn notify(event: OrderEvent) -> Result<String, HandlerOutcome> {
    match event {
        OrderEvent::Placed(Placed { order, customer }) => Ok(format!("Thank you, {customer}, for order {order}.")),
        OrderEvent::Cancelled(Cancelled { order, reason }) => Ok(format!("Order {order} is cancelled: {reason}.")),
        OrderEvent::Other => Err(HandlerOutcome::ack()),
    }
}

#[ruststream::app]
fn app() -> RustStream {
    RustStream::new(AppInfo::new("shop", env!("CARGO_PKG_VERSION"))).with_broker(MemoryBroker::new(), |broker| {
        broker.include(book);
        broker.include(notify);
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use ruststream::testing::TestApp;

    use super::*;

    type TestResult = Result<(), Box<dyn Error>>;

    #[tokio::test]
    async fn payments_are_told_apart_by_their_content() -> TestResult {
        let test = TestApp::start_paused(app()).await?;

        test.publish("payments", &Payment::Card { order: 1, cents: 950 })
            .await?;
        test.publish_bytes("payments", r#"{"order":2,"code":"SPRING","type":"voucher"}"#)
            .await?;
        test.publish_bytes("payments", r#"{"order":3,"type":"cash"}"#).await?;
        test.settled().await;

        assert_eq!(test.published::<u64>("paid"), [1, 2]);
        let dead = test.dead_letters("payments");
        assert_eq!(dead.len(), 1);
        assert!(dead[0].error.contains("unknown variant `cash`"), "{}", dead[0].error);
        Ok(())
    }

    #[tokio::test]
    async fn events_are_told_apart_by_a_header() -> TestResult {
        let test = TestApp::start_paused(app()).await?;

        let placed = Placed {
            order: 1,
            customer: "Ada".to_owned(),
        };
        let cancelled = Cancelled {
            order: 2,
            reason: "sold out".to_owned(),
        };
        test.publish("order-events", &placed)
            .header("event", "order.placed")
            .await?;
        test.publish("order-events", &cancelled)
            .header("event", "order.cancelled")
            .await?;
        test.publish("order-events", &3).header("event", "order.packed").await?;
        test.settled().await;

        let mails = ["Thank you, Ada, for order 1.", "Order 2 is cancelled: sold out."];
        assert_eq!(test.published::<String>("mails"), mails);
        assert!(test.dead_letters("order-events").is_empty());
        Ok(())
    }
}
