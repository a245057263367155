//! Runs the loops of one scenario in turns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::calibration::{Next, Plan, STEP, next};
use super::judge::{rounded, summary};
use super::progress::Progress;
use super::scenario::{Loop, Scenario};
use super::trial::Trial;
use super::{Failed, Transport};
use crate::results;

/// How the loops are run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) rounds: usize,
    pub(super) round: Duration,
}

/// Calibrates every loop and runs its rounds.
pub(super) async fn measure<T: Transport>(
    scenario: &Scenario<T>,
    transport: &Arc<T>,
    pace: Pace,
    progress: &mut Progress,
) -> Result<BTreeMap<String, results::Loop>, Failed> {
    let deadline = Duration::from_mins(1) + 20 * pace.round;
    let loops = &scenario.loops;
    let mut plans = Vec::with_capacity(loops.len());
    for one in loops {
        progress.doing(&scenario.id, &format!("{}, finding its rate", one.name));
        let mut messages = STEP;
        plans.push(loop {
            let took = call(scenario, one, transport, messages, deadline).await?;
            match next(messages, took, pace.round, scenario.at_most) {
                Next::Call(more) => messages = more,
                Next::Ready(plan) => break plan,
            }
        });
    }
    let mut rates = vec![Vec::with_capacity(pace.rounds); loops.len()];
    for round in 0..pace.rounds {
        for turn in 0..loops.len() {
            let at = (round + turn) % loops.len();
            let (one, plan) = (&loops[at], plans[at]);
            let doing = format!("round {} of {}, {}", round + 1, pace.rounds, one.name);
            progress.doing(&scenario.id, &doing);
            let mut took = Duration::ZERO;
            for _ in 0..plan.passes {
                took += call(scenario, one, transport, plan.messages, deadline).await?;
            }
            rates[at].push(rounded(plan.total() as f64 / took.as_secs_f64(), 1));
        }
    }
    let summaries = rates
        .into_iter()
        .zip(&plans)
        .map(|(rates, plan)| summary(rates, plan.total()));
    Ok(loops.iter().map(|one| one.name.to_owned()).zip(summaries).collect())
}

/// Sends a few messages through every loop.
pub(super) async fn smoke<T: Transport>(
    scenario: &Scenario<T>,
    transport: &Arc<T>,
) -> Result<BTreeMap<String, results::Loop>, Failed> {
    let mut loops = BTreeMap::new();
    for one in &scenario.loops {
        let plan = Plan::SMOKE;
        let took = call(scenario, one, transport, plan.messages, Duration::from_mins(2)).await?;
        let rate = rounded(plan.total() as f64 / took.as_secs_f64(), 1);
        loops.insert(one.name.to_owned(), summary(vec![rate], plan.total()));
    }
    Ok(loops)
}

/// Calls a loop once, counts its messages and answers with the time of its timed part.
async fn call<T: Transport>(
    scenario: &Scenario<T>,
    one: &Loop<T>,
    transport: &Arc<T>,
    messages: u64,
    deadline: Duration,
) -> Result<Duration, Failed> {
    let failed = |why: String| -> Failed { format!("{}, loop `{}`: {why}", scenario.id, one.name).into() };
    let trial = Trial::new(Arc::clone(transport), messages);
    let (tally, clock) = (trial.tally(), trial.clock());
    // As in a service: on a worker of the runtime, not on the thread that started it.
    let task = tokio::spawn((one.run)(trial));
    let abort = task.abort_handle();
    match tokio::time::timeout(deadline, task).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => return Err(failed(error.to_string())),
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => {
            abort.abort();
            let seconds = deadline.as_secs_f64();
            return Err(failed(format!(
                "not done after {seconds:.0} s, with {} of {messages} messages handled",
                tally.count()
            )));
        }
    }
    if tally.count() != messages {
        return Err(failed(format!("handled {} messages of {messages}", tally.count())));
    }
    match clock.took() {
        Duration::ZERO => Err(failed("timed nothing".to_owned())),
        took => Ok(took),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Bound, Server};

    /// A transport that is nothing but a clock.
    struct Clock;

    impl Transport for Clock {
        const NAME: &'static str = "clock";
        const BOUND: Bound = Bound::Broker;
        const CLIENTS: &'static [&'static str] = &[];

        fn scenarios() -> Vec<Scenario<Self>> {
            Vec::new()
        }

        async fn open() -> Result<Self, Failed> {
            Ok(Self)
        }

        async fn server(&self) -> Result<Option<Server>, Failed> {
            Ok(None)
        }
    }

    /// Counts `off` messages more or fewer than it was given, one a millisecond.
    async fn counting(trial: Trial<Clock>, off: i64) -> Result<(), Failed> {
        let messages = trial.messages();
        trial
            .timed(async {
                tokio::time::sleep(Duration::from_millis(messages)).await;
                Ok(())
            })
            .await?;
        trial.tally().many(messages.checked_add_signed(off).unwrap());
        Ok(())
    }

    fn right(trial: Trial<Clock>) -> impl Future<Output = Result<(), Failed>> {
        counting(trial, 0)
    }

    fn scenario() -> Scenario<Clock> {
        Scenario::new("clock.row", "a row")
    }

    async fn smoked(scenario: Scenario<Clock>) -> Result<BTreeMap<String, results::Loop>, String> {
        let result = smoke(&scenario, &Arc::new(Clock)).await;
        result.map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn one_message_too_few_or_too_many_fails_by_the_name_of_the_loop() {
        assert!(smoked(scenario().turn("bare", right)).await.is_ok());
        for off in [-1, 1] {
            let scenario = scenario()
                .turn("bare", right)
                .turn("crate", move |trial| counting(trial, off));
            let error = smoked(scenario).await.unwrap_err();
            assert!(error.starts_with("clock.row, loop `crate`: handled 51"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_waits_for_ever_fails_by_its_deadline() {
        let scenario = scenario().turn("service", |trial| async move {
            let tally = trial.tally();
            tally.many(trial.messages() - 1);
            trial
                .timed(async {
                    tally.all().await;
                    Ok(())
                })
                .await
        });
        let error = smoked(scenario).await.unwrap_err();
        assert!(error.contains("511 of 512"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_loop_fails_with_is_told_and_so_is_a_panic() {
        let refused = scenario().turn("bare", |trial| async move { trial.expect("rows left", 3, 0) });
        let error = smoked(refused).await.unwrap_err();
        assert!(error.contains("rows left: 3, and it should be 0"), "{error}");
        let panics = scenario().turn("bare", |_| async { panic!("on purpose") });
        assert!(smoked(panics).await.unwrap_err().contains("on purpose"));
        let untimed = scenario().turn("bare", |trial| async move {
            trial.tally().many(trial.messages());
            Ok(())
        });
        assert!(smoked(untimed).await.unwrap_err().contains("timed nothing"));
    }

    #[tokio::test(start_paused = true)]
    async fn rounds_last_as_long_as_asked_and_are_as_many() {
        let scenario = scenario().turn("bare", right).turn("service", right);
        let pace = Pace {
            rounds: 3,
            round: Duration::from_secs(5),
        };
        let loops = measure(&scenario, &Arc::new(Clock), pace, &mut Progress::new(1))
            .await
            .unwrap();
        for name in ["bare", "service"] {
            let one = &loops[name];
            let near = |rate: &f64| (999.0..=1_000.0).contains(rate);
            assert!(one.rounds.len() == 3 && one.rounds.iter().all(near), "{name}: {one:?}");
            assert_eq!(one.messages, 5_120, "{name}: five seconds at a thousand a second");
        }
    }
}
