//! What an app gives up.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    Book, Harness, Rig, Service, Violation, attempts_grow, ensure, failed, failed_with, finds_nothing, preview,
};
use crate::handler::{HandlerOutcome, Outcome};
use crate::message::{HeaderMap, Outgoing, header};
use crate::policy::Retry;
use crate::transport::{DeadReason, Delivery};

const PAYLOAD: &[u8] = b"\xff given up \0";

/// A message that has everything the transport carries.
struct Original {
    payload: Vec<u8>,
    headers: HeaderMap,
    key: Option<&'static [u8]>,
}

impl Original {
    fn of<H: Harness>(rig: &Rig<'_, H>, payload: &[u8]) -> Self {
        let features = rig.features();
        let mut headers = HeaderMap::new();
        if features.headers {
            headers.append("region", "eu \u{2713}");
            headers.append("trace", "1");
            headers.append("trace", "2");
        }
        if features.header_bytes {
            headers.append("raw", &b"\xfe\0"[..]);
        }
        Self {
            payload: payload.to_vec(),
            headers,
            key: features.keys.then_some(b"key-7"),
        }
    }

    fn outgoing<'a>(&'a self, destination: &'a str) -> Outgoing<'a> {
        let outgoing = Outgoing::new(destination, &self.payload).with_headers(&self.headers);
        match self.key {
            Some(key) => outgoing.with_key(key),
            None => outgoing,
        }
    }

    /// Expects a copy of it, byte for byte, with headers that say why it is there.
    fn is_copied<H: Harness>(
        &self,
        rig: &Rig<'_, H>,
        copy: &impl Delivery,
        reason: DeadReason,
        attempts: u32,
    ) -> Result<(), Violation> {
        ensure!(
            copy.payload() == self.payload,
            "the payload {} became {} as a dead letter",
            preview(&self.payload),
            preview(copy.payload()),
        );
        ensure!(
            self.key.is_none() || copy.key() == self.key,
            "the key {:?} became {:?} as a dead letter",
            self.key,
            copy.key(),
        );
        if !rig.features().headers {
            return Ok(());
        }
        let all = copy.headers();
        let added = |name: &str| name.starts_with("dead-letter-") || name == header::KEY;
        let original: Vec<_> = all.iter().filter(|(name, _)| !added(name)).collect();
        ensure!(
            original == self.headers.iter().collect::<Vec<_>>(),
            "the headers {:?} became {all:?} as a dead letter",
            self.headers,
        );
        for (name, wanted) in [
            (header::DEAD_REASON, reason.as_str()),
            (header::DEAD_ATTEMPTS, &attempts.to_string()),
            (header::DEAD_SOURCE, &rig.name),
        ] {
            let value = all.get_str(name);
            ensure!(
                value == Some(wanted),
                "a dead letter's header {name} is {value:?}, not {wanted:?}"
            );
        }
        let at = all.get_str(header::DEAD_AT).and_then(|at| at.parse::<u64>().ok());
        ensure!(
            at.is_some(),
            "a dead letter's header {} is no time: {all:?}",
            header::DEAD_AT
        );
        let error = all.get_str(header::DEAD_ERROR).unwrap_or_default();
        ensure!(
            !error.is_empty(),
            "a dead letter does not say by its headers what went wrong: {all:?}"
        );
        Ok(())
    }
}

/// Checks that a message which fails too often goes where dead letters go by default, payload and headers untouched: to the
/// transport's own place, or else to `<name>.dead`.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_gives_up_into_the_default_place<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !attempts_grow(&rig) {
        return Ok(());
    }
    let place = Rig::named(harness, format!("{}.dead", rig.name)).await?;
    let mut reader = if rig.capabilities().dead_letters() {
        None
    } else {
        Some(place.open().await?)
    };
    let book = Book::new();
    let failing = book.handler(|_| async { failed_with("the check lets every attempt fail") });
    let service = Service::start(&rig, failing, |subscription| {
        subscription.retry(Retry::fixed(Duration::from_millis(10)).attempts(2));
    })
    .await?;
    let original = Original::of(&rig, PAYLOAD);
    rig.publish(&[original.outgoing(&rig.name)]).await?;
    book.ended(2, rig.deadline()).await?;
    match &mut reader {
        Some(reader) => {
            let copies = reader.take(1).await;
            let copies = copies.map_err(|violation| Violation::new(format!("in `<name>.dead`: {violation}")))?;
            original.is_copied(&rig, &copies[0], DeadReason::AttemptsExhausted, 2)?;
            reader.ack(copies).await?;
        }
        None => is_kept(&rig, PAYLOAD).await?,
    }
    service
        .fares("at rest with one dead letter", |health| {
            health.dead_lettered == 1 && health.in_hand == 0
        })
        .await?;
    service.stop().await?;
    let runs = book.runs().len();
    ensure!(runs == 2, "a message with two attempts was handled {runs} times");
    finds_nothing(&rig, "the message was given up").await
}

/// Waits until the transport's own place holds this dead letter alone, where that can be read.
async fn is_kept<H: Harness>(rig: &Rig<'_, H>, payload: &[u8]) -> Result<(), Violation> {
    let end = Instant::now() + rig.deadline();
    loop {
        let kept = rig.harness.dead_letters(&rig.name).await;
        let Some(kept) = kept.map_err(|error| failed("reading the dead letters", &error))? else {
            return Ok(());
        };
        if kept == [payload] {
            return Ok(());
        }
        let shown: Vec<_> = kept.iter().map(|payload| preview(payload)).collect();
        ensure!(
            Instant::now() < end && kept.is_empty(),
            "{} was given up, and the transport keeps {shown:?}",
            preview(payload)
        );
        sleep(Duration::from_millis(10)).await;
    }
}

/// Checks that where a place is named for dead letters, each comes there byte for byte, with headers that say why.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_gives_up_into_a_named_place<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    let place = Rig::named(harness, harness.name()).await?;
    let mut reader = place.open().await?;
    let book = Book::new();
    let failing = book.handler(|run| async move {
        if run.text == "refused" {
            Outcome::Said(HandlerOutcome::dead_letter("the check refuses it"))
        } else {
            failed_with("the check lets every attempt fail")
        }
    });
    let service = Service::start(&rig, failing, |subscription| {
        subscription.retry(Retry::never()).dead_letter(&place.name);
    })
    .await?;
    for (payload, reason) in [
        (PAYLOAD, DeadReason::AttemptsExhausted),
        (b"refused", DeadReason::Rejected),
    ] {
        let original = Original::of(&rig, payload);
        rig.publish(&[original.outgoing(&rig.name)]).await?;
        let copies = reader.take(1).await;
        let copies = copies.map_err(|violation| Violation::new(format!("in the place named: {violation}")))?;
        original.is_copied(&rig, &copies[0], reason, 1)?;
        reader.ack(copies).await?;
    }
    service
        .fares("at rest with two dead letters", |health| {
            health.dead_lettered == 2 && health.in_hand == 0
        })
        .await?;
    service.stop().await?;
    finds_nothing(&rig, "both messages were given up").await
}

/// Checks that what cannot be decoded, though it comes first, is given up at its first attempt byte for byte, and that all
/// behind it is handled by the same workers.
///
/// # Errors
///
/// Where the app, over this transport, does otherwise.
pub async fn app_sets_poison_aside<H: Harness>(harness: &H) -> Result<(), Violation> {
    let rig = Rig::new(harness).await?;
    if !rig.features().stores {
        return Ok(());
    }
    let place = Rig::named(harness, harness.name()).await?;
    let mut reader = place.open().await?;
    let mut poison = vec![
        Original::of(&rig, b"{\"cut\": "),
        Original::of(&rig, b"\"no number\""),
        Original::of(&rig, b""),
    ];
    if rig.features().headers {
        let mut unknown = Original::of(&rig, b"1");
        unknown.headers.append(header::CONTENT_TYPE, "application/x-unknown");
        poison.push(unknown);
    }
    if rig.features().header_bytes {
        let mut unreadable = Original::of(&rig, b"2");
        unreadable.headers.append(header::CONTENT_TYPE, &b"\xff\xfe"[..]);
        poison.push(unreadable);
    }
    let outgoing: Vec<_> = poison.iter().map(|original| original.outgoing(&rig.name)).collect();
    rig.publish(&outgoing).await?;
    let good: Vec<_> = (0..100u64).map(|number| number.to_string()).collect();
    rig.publish_all(&good).await?;

    let book = Book::new();
    let service = Service::start(&rig, book.acks_numbers(), |subscription| {
        subscription.workers(2).dead_letter(&place.name);
    })
    .await?;
    book.each_once(&good, rig.deadline()).await?;
    let copies = reader.collect(poison.len()).await;
    let copies = copies.map_err(|violation| Violation::new(format!("of what cannot be decoded: {violation}")))?;
    for original in &poison {
        let copy = copies.iter().find(|copy| copy.payload() == original.payload);
        let Some(copy) = copy else {
            let lost = preview(&original.payload);
            return Err(Violation::new(format!(
                "{lost} cannot be decoded, and is not among the dead letters"
            )));
        };
        original.is_copied(&rig, copy, DeadReason::Undecodable, 1)?;
    }
    reader.ack(copies).await?;
    let dead = poison.len() as u64;
    service
        .fares("at rest with two workers and all poison given up", |health| {
            health.workers == 2 && health.in_hand == 0 && health.dead_lettered == dead
        })
        .await?;
    service.stop().await?;
    finds_nothing(&rig, "everything was handled or given up").await
}
