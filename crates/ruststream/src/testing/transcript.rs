//! What happened, as a text for people.

use std::fmt::Write;
use std::time::Duration;

use tokio::time::Instant;

use super::TestBroker;
use super::clock;
use super::journal::{By, Called, Confirmation, Entry, Journal, Published, What};
use super::record::CallOutcome;
use crate::app::{AppHandle, SubscriptionState};
use crate::handler::HandlerOutcome;

/// The most entries that are shown: the last ones tell why a test failed.
const SHOWN: usize = 200;
/// The most of a payload that is shown, in characters or bytes.
const PREVIEW: usize = 160;

/// Tells what happened, and what is still to be done.
pub(super) fn of(journal: &Journal, brokers: &[TestBroker], handle: &AppHandle) -> String {
    let mut text = String::from("what happened:\n");
    let book = journal.book();
    let hidden = book.entries.len().saturating_sub(SHOWN);
    if hidden > 0 {
        let _ = writeln!(text, "  .. {hidden} earlier calls and publishes ..");
    }
    let shown = &book.entries[hidden..];
    let times: Vec<String> = shown.iter().map(|entry| clock::text(entry.at)).collect();
    let width = times.iter().map(String::len).max().unwrap_or_default();
    for (entry, time) in shown.iter().zip(&times) {
        let line = match &entry.what {
            What::Called(called) => call(called, entry.at),
            What::Published(published) => publish(published, &brokers[entry.broker]),
        };
        let _ = writeln!(text, "  {time:>width$}  {}{line}", on(entry, brokers));
    }
    drop(book);
    if shown_nothing(&text) {
        text.push_str("  nothing\n");
    }
    text.push_str("still to be done:\n");
    let open = open(journal, brokers, handle);
    if open.is_empty() {
        text.push_str("  nothing\n");
    }
    for line in open {
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn shown_nothing(text: &str) -> bool {
    text.lines().count() == 1
}

/// The broker, where there is more than one.
fn on(entry: &Entry, brokers: &[TestBroker]) -> String {
    if brokers.len() > 1 {
        format!("[{}] ", brokers[entry.broker].label())
    } else {
        String::new()
    }
}

fn call(called: &Called, began: Duration) -> String {
    let call = &called.call;
    let mut text = format!(
        "{} <- {}, attempt {}: {} => {}",
        call.handler,
        call.subscription,
        call.attempt,
        preview(&call.message),
        outcome(&call.outcome)
    );
    if let Some(took) = called.ended_at.map(|at| at.saturating_sub(began))
        && took >= Duration::from_millis(1)
    {
        let _ = write!(text, ", after {}", clock::text(took));
    }
    if let Some(wait) = call.retry_after {
        let _ = write!(text, "; again in {}", clock::text(wait));
    }
    if let Some(buried) = &called.buried {
        let _ = write!(text, "; {buried}");
    }
    text
}

fn outcome(outcome: &CallOutcome) -> String {
    match outcome {
        CallOutcome::Running => "not ended".to_owned(),
        CallOutcome::Said(HandlerOutcome::Ack) => "acked".to_owned(),
        CallOutcome::Said(HandlerOutcome::Retry { .. }) => "asked for a retry".to_owned(),
        CallOutcome::Said(HandlerOutcome::Drop) => "dropped".to_owned(),
        CallOutcome::Said(HandlerOutcome::DeadLetter { .. }) => "rejected".to_owned(),
        CallOutcome::RepliedTo(all) => format!("replied to {}", all.join(", ")),
        CallOutcome::Replied(to) => format!("replied to {to}"),
        CallOutcome::Failed { kind, error } => format!("{}: {error}", format!("{kind:?}").to_lowercase()),
        CallOutcome::Undecodable(error) => format!("undecodable: {error}"),
        CallOutcome::Stopped => "stopped in the middle, given back".to_owned(),
    }
}

fn publish(published: &Published, broker: &TestBroker) -> String {
    let message = &published.message;
    let who = match published.by {
        By::Test => "the test",
        By::App => "the app",
    };
    let mut text = format!("{who} -> {}: {}", message.destination, preview(&message.payload));
    if let Some(key) = &message.key {
        let _ = write!(text, ", key {}", preview(key));
    }
    if !message.delay.is_zero() {
        let _ = write!(text, ", delayed by {}", clock::text(message.delay));
    }
    if !message.options.is_empty() {
        let _ = write!(text, ", options {:?}", message.options);
    }
    match &published.state {
        Confirmation::Awaited => text.push_str(" => not confirmed"),
        Confirmation::Refused(error) => {
            let _ = write!(text, " => refused: {error}");
        }
        // The app's own messages often go to other services; the test's are for this one.
        // Where rules of the broker lead it is not to be seen from its name.
        Confirmation::Confirmed
            if published.by == By::Test
                && broker.stand_in.routes.is_none()
                && !broker.memory().is_read(&message.destination) =>
        {
            text.push_str(" => no subscription reads it");
        }
        Confirmation::Confirmed => {}
    }
    text
}

/// A line for all that is not done.
fn open(journal: &Journal, brokers: &[TestBroker], handle: &AppHandle) -> Vec<String> {
    let mut lines = Vec::new();
    let now = Instant::now();
    for broker in brokers {
        for backlog in broker.memory().backlogs().iter().filter(|backlog| !backlog.is_empty()) {
            let mut parts = Vec::new();
            if backlog.in_hand > 0 {
                parts.push(format!("{} in hand", backlog.in_hand));
            }
            if backlog.ready > 0 {
                parts.push(format!("{} ready", backlog.ready));
            }
            if backlog.delayed > 0 {
                let due = backlog.due.map(|due| due.saturating_duration_since(now));
                let due = due.map(clock::text).unwrap_or_default();
                parts.push(format!("{} delayed, the next due in {due}", backlog.delayed));
            }
            lines.push(format!("{}: {}", backlog.name, parts.join(", ")));
        }
    }
    match journal.in_flight() {
        0 => {}
        publishes => lines.push(format!("{publishes} publishes under way")),
    }
    for one in handle.health().subscriptions {
        if one.state != SubscriptionState::Running {
            let reason = one.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            let state = format!("{:?}", one.state).to_lowercase();
            lines.push(format!("the subscription on {} is {state}{reason}", one.name));
        }
    }
    lines
}

/// A payload as people read it: as text where it is text, the rest left out.
pub(super) fn preview(payload: &[u8]) -> String {
    match std::str::from_utf8(payload) {
        Ok(text) if !text.chars().any(|one| one.is_control() && !one.is_whitespace()) => {
            let line = text.replace(['\n', '\r'], " ");
            match line.char_indices().nth(PREVIEW) {
                None => line,
                Some((end, _)) => format!("{}.. ({} bytes)", &line[..end], payload.len()),
            }
        }
        _ => {
            let shown = payload.iter().take(PREVIEW / 4).fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
            let more = if payload.len() > PREVIEW / 4 { ".." } else { "" };
            format!("0x{shown}{more} ({} bytes)", payload.len())
        }
    }
}
