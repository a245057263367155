//! What a message carries arrives as it was sent.

use super::{Harness, Rig, Violation, ensure, preview};
use crate::message::{HeaderMap, Outgoing};
use crate::transport::Delivery;

async fn payload_survives<H: Harness>(harness: &H, sent: &[&[u8]]) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let mut reader = rig.open().await?;
    for &payload in sent {
        rig.publish_all(&[payload]).await?;
        let deliveries = reader.take(1).await?;
        let received = deliveries[0].payload();
        ensure!(
            received == payload,
            "sent {} ({} bytes), received {} ({} bytes)",
            preview(payload),
            payload.len(),
            preview(received),
            received.len(),
        );
        reader.ack(deliveries).await?;
    }
    Ok(())
}

/// Checks that text beyond ASCII arrives as it was sent.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn text_survives<H: Harness>(harness: &H) -> Result<(), Violation> {
    let texts = ["Grüße, 世界, \u{1f980}", "\"quoted\" 'twice' \\ and\r\nmore\t"];
    payload_survives(harness, &texts.map(str::as_bytes)).await
}

/// Checks that bytes that are no text arrive as they were sent.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn binary_survives<H: Harness>(harness: &H) -> Result<(), Violation> {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    payload_survives(harness, &[&all, b"\0", b"\xff\xfe", b"a\0b"]).await
}

/// Checks that a message without payload is a message.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn empty_survives<H: Harness>(harness: &H) -> Result<(), Violation> {
    payload_survives(harness, &[b""]).await
}

/// Checks that a payload of a megabyte arrives as it was sent.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn large_survives<H: Harness>(harness: &H) -> Result<(), Violation> {
    let large: Vec<u8> = (0..1024 * 1024u32).map(|n| ((n * 31) >> 7) as u8).collect();
    payload_survives(harness, &[&large]).await
}

async fn carried_headers<H: Harness>(harness: &H, sent: &HeaderMap) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let mut reader = rig.open().await?;
    let none = HeaderMap::new();
    for headers in [sent, &none] {
        rig.publish(&[Outgoing::new(&rig.name, b"x").with_headers(headers)])
            .await?;
        let deliveries = reader.take(1).await?;
        let received = deliveries[0].headers();
        ensure!(
            received == headers,
            "sent the headers {headers:?}, received {received:?}"
        );
        reader.ack(deliveries).await?;
    }
    Ok(())
}

/// Checks that headers arrive in order, with duplicates, empty values and text of any kind.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn headers_survive<H: Harness>(harness: &H) -> Result<(), Violation> {
    if !harness.features().headers {
        return Ok(());
    }
    let sent = [
        ("zeta", "first"),
        ("alpha", "1"),
        ("twice", "one"),
        ("twice", "two"),
        ("empty", ""),
        ("Grüße", "世界 \u{1f980}"),
        ("Alpha", "other case"),
        ("number", "0042"),
    ];
    carried_headers(harness, &sent.into_iter().collect()).await
}

/// Checks that header values may be any bytes.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn header_bytes_survive<H: Harness>(harness: &H) -> Result<(), Violation> {
    if !harness.features().header_bytes {
        return Ok(());
    }
    let mut sent = HeaderMap::new();
    sent.append("trace", vec![0xff, 0x00, 0x80]);
    carried_headers(harness, &sent).await
}

/// Checks that a key arrives as it was sent, and that no key arrives as none.
///
/// # Errors
///
/// Where the transport does otherwise.
pub async fn key_survives<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.features().keys {
        return Ok(());
    }
    let mut reader = rig.open().await?;
    for key in [Some(&b"customer-7"[..]), None, Some("schlüssel".as_bytes())] {
        let mut message = Outgoing::new(&rig.name, b"x");
        if let Some(key) = key {
            message = message.with_key(key);
        }
        rig.publish(&[message]).await?;
        let deliveries = reader.take(1).await?;
        let received = deliveries[0].key();
        ensure!(
            received == key,
            "sent the key {:?}, received {:?}",
            key.map(preview),
            received.map(preview),
        );
        reader.ack(deliveries).await?;
    }
    Ok(())
}
