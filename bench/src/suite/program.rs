//! The program of a transport's bench binary.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use super::arguments::{Arguments, HELP, Task};
use super::judge::{bound, round_trip_share, rounded, verdicts};
use super::progress::Progress;
use super::rounds::{Pace, measure, smoke};
use super::scenario::Scenario;
use super::{Failed, Transport};
use crate::facts;
use crate::results::{self, Environment, Results, Run, Server, Verdict};

/// Measures the scenarios of a transport, as the command line says.
pub fn main<T: Transport>() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprint!("error: {error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if arguments.task == Task::Help {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let scenarios = T::scenarios();
    let ids: Vec<&str> = scenarios.iter().map(|one| one.id.as_str()).collect();
    if let Some(unknown) = arguments.unknown(&ids).first() {
        eprintln!(
            "error: no scenario over {} is named `{unknown}`; --list names them all",
            T::NAME
        );
        return ExitCode::from(2);
    }
    if arguments.task == Task::List {
        for one in scenarios.iter().filter(|one| arguments.wants(&one.id)) {
            println!("{:<32} {}", one.id, one.title);
        }
        return ExitCode::SUCCESS;
    }
    if cfg!(debug_assertions) && arguments.task == Task::Measure {
        eprintln!("error: built without optimization, so nothing is timed: run `cargo xtask bench`, or give --smoke");
        return ExitCode::from(2);
    }
    match run(&arguments, &scenarios) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run<T: Transport>(arguments: &Arguments, scenarios: &[Scenario<T>]) -> Result<(), Failed> {
    check(scenarios)?;
    // Before there are threads, so that all of them, and all servers started by them, inherit it.
    if arguments.pin {
        pin()?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let transport = Arc::new(T::open().await?);
        let server = tokio::spawn({
            let transport = Arc::clone(&transport);
            async move { transport.server().await }
        });
        let server = server.await??;
        let wanted: Vec<_> = scenarios.iter().filter(|one| arguments.wants(&one.id)).collect();
        if arguments.task == Task::Smoke {
            smoke_all(&wanted, &transport, server.as_ref()).await
        } else {
            measure_all(arguments, scenarios, &wanted, &transport, server).await
        }
    })
}

/// What must hold of the scenarios before one of them is run.
fn check<T: Transport>(scenarios: &[Scenario<T>]) -> Result<(), Failed> {
    let mut ids = BTreeSet::new();
    for one in scenarios {
        let id = &one.id;
        if !ids.insert(id) {
            return Err(format!("two scenarios are named `{id}`").into());
        }
        if one.title.is_empty() || one.about.is_empty() {
            return Err(format!("{id}: a scenario says its title and what it is about").into());
        }
        let baseline = one.baseline_name();
        if one.loops.iter().all(|other| other.name != baseline) {
            return Err(format!("{id}: the baseline `{baseline}` is none of its loops").into());
        }
    }
    Ok(())
}

async fn smoke_all<T: Transport>(
    wanted: &[&Scenario<T>],
    transport: &Arc<T>,
    server: Option<&Server>,
) -> Result<(), Failed> {
    let mut progress = Progress::new(wanted.len());
    let mut results = Results::new(Environment::default());
    for scenario in wanted {
        progress.scenario(&scenario.id);
        let loops = smoke(scenario, transport).await?;
        results.put(row(scenario, loops, server, Run::default())?);
    }
    let text = serde_json::to_string(&results)?;
    if Results::parse(&text)? != results {
        return Err("the results are not read as they were written".into());
    }
    let loops: usize = wanted.iter().map(|one| one.loops.len()).sum();
    println!(
        "{}: {} scenarios, {loops} loops, every message counted",
        T::NAME,
        wanted.len()
    );
    Ok(())
}

async fn measure_all<T: Transport>(
    arguments: &Arguments,
    scenarios: &[Scenario<T>],
    wanted: &[&Scenario<T>],
    transport: &Arc<T>,
    server: Option<Server>,
) -> Result<(), Failed> {
    let path = match &arguments.out {
        Some(path) => path.clone(),
        None => facts::workspace_root().join(results::PATH),
    };
    let mut environment = Environment {
        pinned: std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1),
        rounds: arguments.rounds,
        seconds: arguments.round.as_secs_f64(),
        ..facts::environment(T::CLIENTS)
    };
    environment.features.insert(T::NAME.to_owned(), facts::features());
    if let Some(server) = &server {
        environment.servers.insert(T::NAME.to_owned(), server.clone());
    }
    let run = Run {
        date: environment.date.clone(),
        commit: environment.commit.clone(),
        rounds: environment.rounds,
        seconds: environment.seconds,
        pinned: environment.pinned,
        load_average: environment.load_average,
    };
    let mut results = match Results::read(&path)? {
        Some(mut results) => {
            if arguments.anew {
                results.scenarios.clear();
            }
            results
                .measured_in(environment)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            results
        }
        None => Results::new(environment),
    };
    let order: Vec<&str> = scenarios.iter().map(|one| one.id.as_str()).collect();
    let pace = Pace {
        rounds: arguments.rounds,
        round: arguments.round,
    };
    let mut progress = Progress::new(wanted.len());
    for scenario in wanted {
        progress.scenario(&scenario.id);
        let run = Run {
            load_average: facts::load_average(),
            ..run.clone()
        };
        let loops = measure(scenario, transport, pace, &mut progress).await?;
        progress.clear();
        let row = row(scenario, loops, server.as_ref(), run)?;
        show(&row, scenario);
        results.put(row);
        results.arrange(T::NAME, &order);
        // After each, so that what was measured is kept when a later scenario fails.
        results.write(&path)?;
    }
    println!("written: {}", path.display());
    Ok(())
}

/// The row of the results.
fn row<T: Transport>(
    scenario: &Scenario<T>,
    loops: std::collections::BTreeMap<String, results::Loop>,
    server: Option<&Server>,
    run: Run,
) -> Result<results::Scenario, Failed> {
    let baseline = scenario.baseline_name();
    let by_hand = ["tuned", "hand"].into_iter().find(|name| loops.contains_key(*name));
    let by_hand = by_hand.filter(|name| *name != baseline);
    let share = match (scenario.round_trips, server) {
        (Some(trips), Some(server)) => {
            let measured = server.round_trip_us.get(trips.command);
            let measured = measured.ok_or_else(|| {
                format!(
                    "{}: the round trip of `{}` was not measured, only those of {:?}",
                    scenario.id,
                    trips.command,
                    server.round_trip_us.keys()
                )
            })?;
            let rate = loops[baseline].best;
            Some(round_trip_share(trips.per_message, *measured, rate, scenario.workers))
        }
        _ => None,
    };
    Ok(results::Scenario {
        id: scenario.id.clone(),
        transport: T::NAME.to_owned(),
        title: scenario.title.clone(),
        about: scenario.about.to_owned(),
        workers: scenario.workers,
        baseline: baseline.to_owned(),
        bound: bound(share, T::BOUND),
        round_trip_share: share,
        verdicts: verdicts(&loops, baseline),
        by_hand: by_hand.map_or_else(Default::default, |name| verdicts(&loops, name)),
        loops,
        run,
    })
}

/// Prints a row for who watches.
fn show<T>(row: &results::Scenario, scenario: &Scenario<T>) {
    println!("{}: {}", row.id, row.title);
    for name in scenario.loops.iter().map(|one| one.name) {
        let one = &row.loops[name];
        let against = |verdict: &Verdict| {
            let word = format!("{:?}", verdict.verdict).to_lowercase();
            format!("   {} x {}, {word}", rounded(verdict.ratio, 2), verdict.against)
        };
        let baseline = row.verdicts.get(name).map(against).unwrap_or_default();
        let by_hand = row.by_hand.get(name).filter(|verdict| verdict.against != row.baseline);
        let by_hand = by_hand
            .filter(|_| name != row.baseline)
            .map(against)
            .unwrap_or_default();
        println!(
            "  {name:<8} {:>12.0} msg/s   median {:>12.0}   slowest {:>12.0}{baseline}{by_hand}",
            one.best, one.median, one.worst
        );
    }
    if let Some(bound) = row.bound {
        let word = format!("{bound:?}").to_lowercase();
        let share = row.round_trip_share.unwrap_or_default() * 100.0;
        println!("  bound by the {word}: {share:.0} % of the baseline's time is round trips");
    }
}

/// Keeps this process on one of the processors that it may use.
#[cfg(target_os = "linux")]
fn pin() -> Result<(), Failed> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    let mut one = CpuSet::new();
    one.set(first.ok_or("--pin: no processor is allowed")?);
    sched_setaffinity(None, &one)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn pin() -> Result<(), Failed> {
    Err("--pin works on Linux alone".into())
}
