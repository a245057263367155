//! The charts of the benchmark pages: static HTML, drawn at build time from `results.json`.
//!
//! Marks are placed by percentages, so that a chart is as wide as its page and its text stays as large as the page's. Each mark can be
//! reached by keyboard and says its figures to a screen reader; `docs/theme/charts.js` only adds the arrow keys.

mod cost;
mod loops;
mod machine;
mod scale;
mod table;
mod versus;
mod workers;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ruststream_bench::results::{Results, Scenario};

use crate::number::number;

/// All that a page shows of the transports: the loops against each other, over workers, the cost of the code, the machine. A transport
/// without figures is left out.
pub(crate) fn page(results: &Results, transports: &[&str]) -> String {
    let has_figures = |transport: &&&str| {
        let mut scenarios = results.scenarios.iter();
        scenarios.any(|row| row.transport == **transport)
            || results.costs.iter().any(|row| row.transport == **transport)
    };
    let transports: Vec<&str> = transports.iter().filter(has_figures).copied().collect();
    if transports.is_empty() {
        return "> **No figures yet.** `cargo xtask bench` measures them.\n".to_owned();
    }
    let mut bars = String::new();
    let mut lines = String::new();
    let mut costs = String::new();
    for &transport in &transports {
        let scenarios: Vec<_> = results
            .scenarios
            .iter()
            .filter(|row| row.transport == transport)
            .collect();
        let (series, rows): (Vec<_>, Vec<_>) = scenarios.iter().partition(|row| workers::is_in_series(row, &scenarios));
        let title = (transports.len() > 1).then(|| name(transport));
        let drawn = versus::chart(transport, "rows", &rows) + &versus::chart(transport, "workers", &series);
        section(&mut bars, title, &drawn);
        section(&mut lines, title, &workers::charts(&series));
        let counted: Vec<_> = results.costs.iter().filter(|row| row.transport == transport).collect();
        section(&mut costs, title, &cost::charts(transport, &counted));
    }
    let mut page = String::new();
    for (title, about, drawn) in [
        ("Against hand-written loops", VERSUS, &bars),
        ("Over workers", WORKERS, &lines),
        ("Cost of the code", COST, &costs),
        ("The machine", "", &machine::table(&results.environment, &transports)),
    ] {
        if !drawn.is_empty() {
            let _ = write!(page, "## {title}\n\n{about}\n\n{drawn}\n\n");
        }
    }
    page
}

const VERSUS: &str = "Each bar runs from a loop's best round to its slowest, with a dot at the best and a notch at the median. Zero is \
    the best round of the first loop, which the others are held against: the bare one, or where the handler takes batches the tuned one. To \
    the right is slower. A hollow dot stands where the difference is no larger than the rounds' spread. \
    [How these figures are made](method.md), and [what may be concluded](conclusions.md).

<ul class=\"legend of-service\"><li><span class=\"sign\"><b class=\"bar\"></b></span>all rounds</li><li><span class=\"sign\"><b class=\"dot\"></b></span>\
    best round</li><li><span class=\"sign\"><b class=\"notch\"></b></span>median round</li><li><span class=\"sign\"><b class=\"dot hollow\"></b></span>\
    best round, indistinguishable</li></ul>";

const WORKERS: &str = "A filled queue is drained by one subscription with `.workers(n)`, and by n tasks of the other loops. Each line \
    joins the best rounds; the stroke below a dot reaches down to the slowest.";

const COST: &str = "What one message costs in steady state on the service's thread: instructions (callgrind) and allocations (DHAT), \
    start-up cancelled out. Beside it, where there is one, the hand-written counterpart, counted in the same way.";

/// Adds what is drawn of one transport, under its name where the page has several.
fn section(page: &mut String, title: Option<&str>, drawn: &str) {
    if drawn.is_empty() {
        return;
    }
    if let Some(title) = title {
        let _ = write!(page, "### {title}\n\n");
    }
    let _ = write!(page, "{drawn}\n\n");
}

/// A transport's name for people.
pub(crate) fn name(transport: &str) -> &str {
    match transport {
        "memory" => "In process",
        "sqlite" => "SQLite",
        "postgres" => "Postgres",
        "mysql" => "MariaDB",
        "outbox" => "Outbox",
        "redis" => "Redis",
        "rabbitmq" => "RabbitMQ",
        "mqtt" => "MQTT",
        other => other,
    }
}

/// When and how rows were measured, in a sentence; several where they differ.
fn measured(rows: &[&Scenario]) -> String {
    let runs: BTreeSet<_> = rows
        .iter()
        .map(|row| {
            let run = &row.run;
            let processors = if run.pinned {
                "loops and servers on one CPU"
            } else {
                "all CPUs free"
            };
            format!(
                "measured {} at {}, {} rounds of about {} s each, {processors}",
                run.date,
                run.commit,
                run.rounds,
                number(run.seconds)
            )
        })
        .collect();
    let runs: Vec<_> = runs.into_iter().collect();
    let loads = rows.iter().map(|row| row.run.load_average[0]);
    let (least, most) = loads.fold((f64::INFINITY, 0.0_f64), |(least, most), load| {
        (least.min(load), most.max(load))
    });
    format!(
        "{}; load average {least:.1} to {most:.1} when a row began",
        runs.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use ruststream_bench::results::Environment;

    use super::*;

    #[test]
    fn a_transport_without_figures_says_so() {
        let page = page(&Results::new(Environment::default()), &["memory"]);
        assert_eq!(page, "> **No figures yet.** `cargo xtask bench` measures them.\n");
    }
}
