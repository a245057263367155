//! What goes out of the shop, and when.

use std::error::Error;

use ruststream::codec::Codec;
use ruststream::message::header;
use ruststream::testing::TestApp;

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

fn cart(customer: &str, region: &str, articles: &[&str]) -> Cart {
    Cart {
        customer: customer.to_owned(),
        region: region.to_owned(),
        articles: articles.iter().map(|&article| article.to_owned()).collect(),
    }
}

/// The shop without what it does at its start.
fn shop() -> RustStream {
    RustStream::new(AppInfo::new("shop", "0"))
        .with_broker(MemoryBroker::new(), |broker| {
            broker.include(check_out);
            broker.include(pack);
            broker.include(receive);
            broker.include(count);
        })
        .build()
}

#[tokio::test]
async fn a_cart_becomes_parcels_of_its_region() -> TestResult {
    let test = TestApp::start_paused(shop()).await?;

    let ada = cart("Ada", "eu", &["hammer", "nails"]);
    test.publish("carts", &ada)
        .header(header::CORRELATION_ID, "cart-7")
        .await?;
    test.settled().await;

    assert_eq!(test.published::<Order>("orders.eu")[0].customer, "Ada");
    let parcels = test.raw_published("parcels.eu");
    let told: Vec<_> = parcels
        .iter()
        .map(|parcel| {
            (
                parcel.decode::<Parcel>().article,
                parcel.headers.get_str("number"),
                parcel.headers.get_str(header::CORRELATION_ID),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("hammer".to_owned(), Some("1"), Some("cart-7")),
            ("nails".to_owned(), Some("2"), Some("cart-7")),
        ]
    );
    Ok(())
}

#[tokio::test]
async fn a_reminder_waits_until_tomorrow() -> TestResult {
    let test = TestApp::start_paused(shop()).await?;

    test.publish("carts", &cart("Ada", "eu", &[])).await?;
    test.settled().await;

    let reminder = &test.raw_published("reminders")[0];
    assert_eq!(reminder.delay, TOMORROW);
    assert_eq!(reminder.key.as_deref(), Some(&b"Ada"[..]));
    let options = reminder.options::<MqttOptions>();
    assert_eq!(options, Some(&MqttOptions::new().expiry(2 * TOMORROW)));
    Ok(())
}

#[tokio::test]
async fn a_region_that_leads_elsewhere_is_an_error_and_no_order_is_sent() -> TestResult {
    let test = TestApp::start_paused(shop()).await?;

    test.publish("carts", &cart("Eve", "eu.secret", &["hammer"])).await?;
    test.settled().await;

    assert!(test.raw_published("orders.eu.secret").is_empty());
    let letter = &test.dead_letters("carts")[0];
    assert!(letter.error.contains("orders.{region}"), "{}", letter.error);
    Ok(())
}

/// Without an app: the replies as they would be sent.
#[tokio::test]
async fn a_payment_is_receipted_and_thanked_for() -> TestResult {
    let replies = receive::call(cart("Ada", "eu", &["hammer"])).await;

    let sent: Vec<_> = replies
        .iter()
        .map(|reply| reply.prepared(&Codec::Json))
        .collect::<Result<_, _>>()?;

    assert_eq!(sent[0].destination(), "", "it goes where the attribute says");
    assert_eq!(sent[0].payload(), br#"{"customer":"Ada","pieces":1}"#);
    assert_eq!(sent[1].destination(), "mails");
    assert_eq!(sent[1].delay(), Duration::from_mins(1));
    Ok(())
}

#[tokio::test]
async fn replies_go_where_the_attribute_says_and_where_they_say() -> TestResult {
    let test = TestApp::start_paused(shop()).await?;

    test.publish("payments", &cart("Ada", "eu", &["hammer"])).await?;
    test.settled().await;

    assert_eq!(test.published::<Receipt>("receipts")[0].pieces, 1);
    assert_eq!(test.published::<String>("mails"), ["thank you, Ada"]);
    Ok(())
}

#[tokio::test]
async fn the_start_imports_and_asks() -> TestResult {
    let test = TestApp::start_paused(app()).await?;
    test.settled().await;

    assert_eq!(test.published::<Cart>("carts").len(), 1);
    assert_eq!(&test.raw_published("imports")[0].payload[..], b"1 carts");
    assert_eq!(stock(&test.client().await?, "hammer").await?, Pieces(6));
    Ok(())
}
