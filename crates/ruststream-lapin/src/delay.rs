//! Delays, kept by the server: through a crash of either side, and none held up by another.
//!
//! A queue hands out in order, so a message that waits for its time in one holds up those behind it. Here each queue has one
//! time that all its messages wait, and a delay is a sum of such times: its digits to the base 8, in units of 10 ms. A message
//! goes from the queue of one digit to that of the next by dead-lettering, through an exchange for each place, and at last into
//! its own queue. At most seven queues for each of ten places are ever made, each when it is first needed. They are quorum queues
//! that dead-letter at least once, so that no step is lost.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lapin::options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, ExchangeKind};
use ruststream::transport::{ErrorKind, TransportError};

use crate::link::{Link, Live};
use crate::queue::text;

/// What all names on the server begin with.
pub(crate) const PREFIX: &str = "ruststream.delay";
/// The shortest delay, and what all others are multiples of.
const UNIT: Duration = Duration::from_millis(10);
const BASE: u64 = 8;
const PLACES: usize = 10;
/// The longest delay: 124 days.
const MOST: u64 = BASE.pow(PLACES as u32) - 1;

/// A delay as digits, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digits([u8; PLACES]);

impl Digits {
    /// The delay as it is, rounded up to whole units; `None` where it is too long.
    pub(crate) fn exact(delay: Duration) -> Option<Self> {
        Self::of(delay.as_nanos().div_ceil(UNIT.as_nanos()))
    }

    /// The delay rounded up by an eighth at most, for retries, where that does not matter: fewer steps, fewer queues. One that is too
    /// long is cut to the longest: a message that waits for its retry is never given up for that.
    pub(crate) fn rounded(delay: Duration) -> Self {
        let units = delay.as_nanos().div_ceil(UNIT.as_nanos());
        let mut grain = 1;
        while units / grain >= u128::from(BASE * BASE) {
            grain *= u128::from(BASE);
        }
        Self::of(units.div_ceil(grain) * grain).unwrap_or(Self([BASE as u8 - 1; PLACES]))
    }

    fn of(units: u128) -> Option<Self> {
        let mut rest = u64::try_from(units).ok().filter(|units| *units <= MOST)?.max(1);
        let mut digits = [0; PLACES];
        for digit in &mut digits {
            *digit = (rest % BASE) as u8;
            rest /= BASE;
        }
        Some(Self(digits))
    }

    /// The exchange where a message with this delay begins.
    pub(crate) fn exchange(&self) -> String {
        exchange(self.highest())
    }

    /// The routing key that leads it through its queues to its own.
    pub(crate) fn routing_key(&self, queue: &str) -> String {
        let mut key = String::with_capacity(2 * PLACES + queue.len());
        for digit in self.0.iter().rev() {
            let _ = write!(key, "{digit}.");
        }
        key.push_str(&address(queue));
        key
    }

    fn highest(&self) -> usize {
        self.0.iter().rposition(|digit| *digit > 0).unwrap_or_default()
    }

    /// Places and digits that it waits at.
    fn steps(&self) -> impl Iterator<Item = (usize, u8)> + '_ {
        self.0.iter().copied().enumerate().filter(|(_, digit)| *digit > 0)
    }
}

/// Why there is no such delay.
pub(crate) fn too_long(delay: Duration) -> TransportError {
    let longest = UNIT * u32::try_from(MOST).unwrap_or(u32::MAX);
    TransportError::new(
        ErrorKind::Invalid,
        format!(
            "a delay of {delay:?} is longer than the {} days that RabbitMQ is made to keep a message back; publish it nearer to its time",
            longest.as_secs() / (24 * 60 * 60)
        ),
    )
}

/// A queue's name where wildcards are looked for: those that contain one are written as digits.
fn address(queue: &str) -> String {
    if !queue.contains(['*', '#']) {
        return queue.to_owned();
    }
    queue.bytes().fold("hex.".to_owned(), |mut address, byte| {
        let _ = write!(address, "{byte:02x}");
        address
    })
}

fn exchange(place: usize) -> String {
    format!("{PREFIX}.{place}")
}

fn last_exchange() -> String {
    format!("{PREFIX}.over")
}

/// The exchange behind that of `place`.
fn next_exchange(place: usize) -> String {
    place.checked_sub(1).map_or_else(last_exchange, exchange)
}

fn queue(place: usize, digit: u8) -> String {
    format!("{PREFIX}.{place}.{digit}")
}

/// The pattern of routing keys that have `digit` at `place`.
fn pattern(place: usize, digit: u8) -> String {
    format!("{}{digit}.#", "*.".repeat(PLACES - 1 - place))
}

/// What is known to be there on the server.
#[derive(Default)]
pub(crate) struct DelayQueues {
    known: Mutex<HashSet<String>>,
}

impl DelayQueues {
    /// Makes sure that a message with this delay finds its way to `target`.
    ///
    /// # Errors
    ///
    /// Unroutable where there is no queue `target`.
    pub(crate) async fn ensure(&self, link: &Link, digits: &Digits, target: &str) -> Result<(), TransportError> {
        let place = format!("to {target}");
        let mut missing: Vec<_> = digits
            .steps()
            .filter(|(place, digit)| !self.knows(&queue(*place, *digit)))
            .collect();
        let chain = exchange(digits.highest());
        if missing.is_empty() && self.knows(&place) && self.knows(&chain) {
            return Ok(());
        }
        let live = link.live().await?;
        let channel = link.channel(&live).await?;
        let server = Server {
            link,
            live: &live,
            channel: &channel,
        };
        server.exchange(&last_exchange()).await?;
        for place in 0..=digits.highest() {
            if !self.knows(&exchange(place)) {
                server.exchange(&exchange(place)).await?;
                server.pass_on(place).await?;
                self.learn(exchange(place));
            }
        }
        for (place, digit) in missing.drain(..) {
            server.queue(place, digit).await?;
            self.learn(queue(place, digit));
        }
        server.lead_to(target).await?;
        self.learn(place);
        Ok(())
    }

    /// Forgets all: a server may have been set up anew.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    fn knows(&self, name: &str) -> bool {
        self.lock().contains(name)
    }

    fn learn(&self, name: String) {
        self.lock().insert(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A channel to declare on.
struct Server<'a> {
    link: &'a Link,
    live: &'a Live,
    channel: &'a Channel,
}

impl Server<'_> {
    async fn exchange(&self, name: &str) -> Result<(), TransportError> {
        let options = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        let declaring = self
            .channel
            .exchange_declare(name.into(), ExchangeKind::Topic, options, FieldTable::default());
        self.link
            .call(self.live, &format!("exchange `{name}`"), declaring)
            .await
    }

    /// What does not wait at a place goes on to the next.
    async fn pass_on(&self, place: usize) -> Result<(), TransportError> {
        let (name, next) = (exchange(place), next_exchange(place));
        let binding = self.channel.exchange_bind(
            next.as_str().into(),
            name.as_str().into(),
            pattern(place, 0).into(),
            ExchangeBindOptions::default(),
            FieldTable::default(),
        );
        self.link
            .call(self.live, &format!("binding exchange `{next}` to `{name}`"), binding)
            .await
    }

    async fn queue(&self, place: usize, digit: u8) -> Result<(), TransportError> {
        let name = queue(place, digit);
        let wait = i64::from(digit) * (UNIT.as_millis() as i64 * BASE.pow(place as u32).cast_signed());
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), text("quorum"));
        arguments.insert("x-message-ttl".into(), wait.into());
        arguments.insert("x-dead-letter-exchange".into(), text(&next_exchange(place)));
        arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
        arguments.insert("x-overflow".into(), text("reject-publish"));
        let declaring = self
            .channel
            .queue_declare(name.as_str().into(), QueueDeclareOptions::durable(), arguments);
        self.link.call(self.live, &format!("queue `{name}`"), declaring).await?;
        self.bind(&name, &exchange(place), &pattern(place, digit)).await
    }

    async fn lead_to(&self, target: &str) -> Result<(), TransportError> {
        let pattern = format!("{}{}", "*.".repeat(PLACES), address(target));
        self.bind(target, &last_exchange(), &pattern).await
    }

    async fn bind(&self, queue: &str, exchange: &str, pattern: &str) -> Result<(), TransportError> {
        let binding = self.channel.queue_bind(
            queue.into(),
            exchange.into(),
            pattern.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        self.link
            .call(
                self.live,
                &format!("binding queue `{queue}` to exchange `{exchange}`"),
                binding,
            )
            .await
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn units(digits: &Digits) -> u64 {
        digits
            .0
            .iter()
            .rev()
            .fold(0, |sum, digit| sum * BASE + u64::from(*digit))
    }

    proptest! {
        #[test]
        fn a_delay_is_never_short_and_hardly_long(millis in 1u64..10_000_000_000) {
            let delay = Duration::from_millis(millis);
            let exact = Digits::exact(delay).map(|digits| units(&digits) * 10).unwrap();
            prop_assert!(exact >= millis && exact < millis + 10);
            let rounded = units(&Digits::rounded(delay)) * 10;
            prop_assert!(rounded >= millis && rounded <= millis + millis / 8 + 10);
            prop_assert!(Digits::rounded(delay).steps().count() <= 3);
        }
    }

    #[test]
    fn a_delay_beyond_the_longest_is_refused_with_the_longest_and_a_retry_waits_that_long() {
        assert!(Digits::exact(Duration::from_hours(124 * 24)).is_some());
        let delay = Duration::from_hours(125 * 24);
        assert_eq!(Digits::exact(delay), None);
        for delay in [delay, Duration::MAX] {
            assert_eq!(units(&Digits::rounded(delay)), MOST);
        }
        assert!(too_long(delay).to_string().contains("124 days"), "{}", too_long(delay));
    }

    #[test]
    fn keys_and_patterns_have_a_word_for_each_place() {
        let digits = Digits::exact(Duration::from_millis(90)).unwrap();
        assert_eq!(digits.exchange(), "ruststream.delay.1");
        assert_eq!(digits.routing_key("a.b"), "0.0.0.0.0.0.0.0.1.1.a.b");
        assert_eq!(pattern(1, 1), "*.*.*.*.*.*.*.*.1.#");
        assert_eq!(digits.routing_key("a.#"), "0.0.0.0.0.0.0.0.1.1.hex.612e23");
    }
}
