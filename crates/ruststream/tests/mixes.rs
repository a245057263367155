//! Random mixes of outcomes, latencies, workers, batches, orders and cuts: every message ends exactly once.
#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use common::{Given, Reduced, batch_handler, handler, health, start};
use proptest::prelude::*;
use ruststream::app::{BrokerScope, Subscription};
use ruststream::message::Outgoing;
use ruststream::prelude::*;
use ruststream::transport::{Broker, Capabilities, Publish};

const MESSAGES: u64 = 200;

/// What happens to one message, attempt by attempt; the last step repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Ack,
    Fail,
    Retry,
    Drop,
    Bury,
    Panic,
    Stall,
}

#[derive(Debug, Clone)]
struct Fate {
    steps: Vec<Step>,
    millis: u64,
    key: Option<u8>,
}

#[derive(Debug, Clone)]
struct Mix {
    fates: Vec<Fate>,
    workers: usize,
    batch: Option<usize>,
    prefetch: Option<usize>,
    ordered: bool,
    reduced: bool,
    named_place: bool,
    cuts: usize,
    restarts: usize,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Ack),
        2 => Just(Step::Fail),
        1 => Just(Step::Retry),
        1 => Just(Step::Drop),
        1 => Just(Step::Bury),
        1 => Just(Step::Panic),
        1 => Just(Step::Stall),
    ]
}

fn any_fate() -> impl Strategy<Value = Fate> {
    (
        proptest::collection::vec(any_step(), 1..4),
        prop_oneof![3 => Just(0), 1 => 1..50u64],
        proptest::option::weighted(0.8, 0..6u8),
    )
        .prop_map(|(steps, millis, key)| Fate { steps, millis, key })
}

fn any_mix(faults: bool) -> impl Strategy<Value = Mix> {
    let most: usize = if faults { 4 } else { 1 };
    (
        proptest::collection::vec(any_fate(), MESSAGES as usize),
        1..9usize,
        proptest::option::of(1..12usize),
        proptest::option::weighted(0.3, 12..60usize),
        (any::<bool>(), any::<bool>(), any::<bool>()),
        0..most,
        0..most,
    )
        .prop_map(
            |(fates, workers, batch, prefetch, (ordered, reduced, named_place), cuts, restarts)| Mix {
                fates,
                workers,
                batch,
                prefetch,
                ordered,
                reduced,
                named_place,
                cuts,
                restarts,
            },
        )
}

/// What the handler did, in order: which message, at which attempt, and the step that ended it, if one did.
type Log = Arc<Mutex<Vec<(u64, u32, Option<Step>)>>>;

fn step(fates: &[Fate], given: &Given) -> Step {
    let steps = &fates[given.id() as usize].steps;
    steps[(given.attempt as usize - 1).min(steps.len() - 1)]
}

async fn act(fates: Arc<Vec<Fate>>, log: Log, given: Given) -> HandlerOutcome {
    let step = step(&fates, &given);
    tokio::time::sleep(Duration::from_millis(fates[given.id() as usize].millis)).await;
    let note = |end| log.lock().unwrap().push((given.id(), given.attempt, end));
    match step {
        Step::Stall => {
            note(None);
            std::future::pending().await
        }
        Step::Panic => {
            note(None);
            panic!("as told");
        }
        Step::Fail | Step::Retry => {
            note(None);
            HandlerOutcome::retry()
        }
        Step::Ack => {
            note(Some(step));
            HandlerOutcome::ack()
        }
        Step::Drop => {
            note(Some(step));
            HandlerOutcome::drop()
        }
        Step::Bury => {
            note(Some(step));
            HandlerOutcome::dead_letter("as told")
        }
    }
}

fn mount<B: Broker>(mix: &Mix, log: &Log, scope: &mut BrokerScope<'_, B, ()>) {
    let (fates, log) = (Arc::new(mix.fates.clone()), log.clone());
    let orders: &mut Subscription<B> = match mix.batch {
        None => scope.include(handler("orders", move |given| act(fates.clone(), log.clone(), given))),
        Some(size) => {
            let orders = scope.include(batch_handler("orders", move |batch| {
                let (fates, log) = (fates.clone(), log.clone());
                async move {
                    let mut said = Vec::new();
                    // A message that ruins its batch comes first, so that none is noted as ended that is tried again.
                    let ruins = |given: &&Given| matches!(step(&fates, given), Step::Panic | Step::Stall);
                    if let Some(ruin) = batch.iter().find(ruins) {
                        act(fates.clone(), log.clone(), ruin.clone()).await;
                    }
                    for given in batch {
                        said.push(act(fates.clone(), log.clone(), given).await);
                    }
                    said
                }
            }));
            orders.batch(size).batch_age(Duration::from_millis(30));
            orders
        }
    };
    orders
        .workers(mix.workers)
        .timeout(Duration::from_secs(30))
        .retry(Retry::exponential(Duration::from_secs(1)).attempts(4));
    if mix.ordered {
        orders.ordered_by(OrderBy::key());
    }
    if let Some(prefetch) = mix.prefetch {
        orders.prefetch(prefetch);
    }
    if mix.named_place {
        orders.dead_letter("graveyard");
    }
}

/// Runs the mix to its end; answers what the handlers did, and the dead letters with how often each was kept.
async fn run(mix: &Mix) -> (MemoryBroker, Log, HashMap<u64, usize>) {
    let (broker, log) = (MemoryBroker::new(), Log::default());
    let payloads: Vec<_> = (0..MESSAGES).map(|id| id.to_string()).collect();
    let keys: Vec<_> = mix.fates.iter().map(|fate| fate.key.map(|key| [key])).collect();
    let messages: Vec<_> = payloads
        .iter()
        .zip(&keys)
        .map(|(payload, key)| {
            let message = Outgoing::new("orders", payload.as_bytes());
            key.as_ref().map_or(message, |key| message.with_key(key))
        })
        .collect();
    broker.publisher().publish(&messages).await.unwrap();

    let new = || async {
        if mix.reduced {
            let reduced = Reduced::new(&broker, Capabilities::none());
            (
                start(reduced.clone(), |scope| mount(mix, &log, scope)).await,
                Some(reduced),
            )
        } else {
            (start(broker.clone(), |scope| mount(mix, &log, scope)).await, None)
        }
    };
    let (mut running, mut reduced) = new().await;
    for fault in 0..mix.cuts.max(mix.restarts) {
        tokio::time::sleep(Duration::from_millis(700)).await;
        if fault < mix.cuts {
            broker.cut();
        }
        if fault < mix.restarts {
            running.shutdown().await.unwrap();
            (running, reduced) = new().await;
        }
    }
    common::within(broker.idle("orders")).await;
    // What a cut took away while it was kept for a retry is let go at its time.
    common::within(async {
        while health(&running).in_hand > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
    .await;
    assert_eq!(health(&running).workers, mix.workers as u64);
    running.shutdown().await.unwrap();
    if let Some(reduced) = reduced {
        assert_eq!(reduced.beyond(), Vec::<String>::new());
    }

    let mut dead = HashMap::new();
    let copies = ["graveyard", "orders.dead"].map(|place| broker.published(place));
    let copies = copies.iter().flatten().map(|copy| copy.payload.to_vec());
    let own = broker
        .dead_letters("orders")
        .into_iter()
        .map(|dead| dead.payload.to_vec());
    for payload in copies.chain(own) {
        let id = String::from_utf8(payload).unwrap().parse::<u64>().unwrap();
        *dead.entry(id).or_default() += 1;
    }
    (broker, log, dead)
}

fn on_paused_clock<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(work)
}

/// How often each message was ended so by its handler.
fn count(log: &Log, so: impl Fn(Option<Step>) -> bool) -> HashMap<u64, usize> {
    let mut ends = HashMap::new();
    for (id, _, end) in log.lock().unwrap().iter() {
        *ends.entry(*id).or_default() += usize::from(so(*end));
    }
    ends
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_message_ends_exactly_once_and_each_key_in_order(mix in any_mix(false)) {
        let (broker, log, dead) = on_paused_clock(run(&mix));
        let buries = count(&log, |end| end == Some(Step::Bury));
        let ends = count(&log, |end| end.is_some());
        for (id, fate) in mix.fates.iter().enumerate() {
            let id = id as u64;
            // Acked, dropped or buried by its handler once, or a dead letter because its attempts were used up.
            let ended = ends.get(&id).copied().unwrap_or(0);
            let buried = dead.get(&id).copied().unwrap_or(0);
            // A batch that another message ruins costs its messages a step, so that some come to no end of their own.
            let said = fate.steps.iter().find(|step| matches!(step, Step::Ack | Step::Drop | Step::Bury));
            let own_ends: &[_] = match said {
                Some(Step::Bury) => &[(1, 1)],
                Some(_) => &[(1, 0)],
                None => &[(0, 1)],
            };
            let batch_ends = [(1, 1), (1, 0), (0, 1)];
            let ends = if mix.batch.is_none() { own_ends } else { &batch_ends };
            prop_assert!(ends.contains(&(ended, buried)), "{id} of {fate:?} ended {ended} times, buried {buried} times");
            let buried_by_handler = buries.get(&id).copied().unwrap_or(0);
            prop_assert!(ended == 0 || buried == buried_by_handler, "{id} of {fate:?}: {buried} dead letters");
        }
        prop_assert_eq!(broker.counts("orders").stale, 0);

        // Each attempt comes once and in turn.
        let log = log.lock().unwrap();
        if mix.batch.is_none() {
            let mut attempts = HashMap::<u64, u32>::new();
            for (id, attempt, _) in log.iter() {
                let last = attempts.entry(*id).or_default();
                prop_assert_eq!(*attempt, *last + 1);
                *last = *attempt;
            }
        }
        if mix.ordered {
            let mut last = HashMap::<u8, u64>::new();
            for (id, ..) in log.iter() {
                if let Some(key) = mix.fates[*id as usize].key {
                    let before = last.insert(key, *id);
                    prop_assert!(before.is_none_or(|before| before <= *id), "{} after {:?}", id, before);
                }
            }
        }
    }

    #[test]
    fn through_cuts_and_restarts_every_message_ends_and_none_is_lost(mix in any_mix(true)) {
        let (broker, log, dead) = on_paused_clock(run(&mix));
        let ends = count(&log, |end| end.is_some());
        for (id, _) in mix.fates.iter().enumerate() {
            let id = id as u64;
            let ended = ends.get(&id).copied().unwrap_or(0);
            let buried = dead.get(&id).copied().unwrap_or(0);
            prop_assert!(ended + buried > 0, "{} is lost", id);
            // Without a cut no receipt is lost, so nothing ends twice.
            if mix.cuts == 0 {
                prop_assert!(ended <= 1 && buried <= 1, "{} ended {} times, buried {} times", id, ended, buried);
            }
        }
        prop_assert_eq!(broker.held("orders"), 0);
    }
}
