//! Makes figures of what gungraun counted: `costs record|gate RESULTS VALGRIND < counts`. `cargo xtask bench --cost` calls it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program run by hand shows its figures"
)]

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use ruststream_bench::costs::counted::Counted;
use ruststream_bench::costs::{gate, rows};
use ruststream_bench::results::{Cost, Counts, Environment, Results};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["record", file, valgrind] => record(Path::new(file), valgrind),
        ["gate", file, _] => judge(Path::new(file)),
        _ => Err("usage: costs record|gate RESULTS VALGRIND < counts".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The figures of all rows that were counted.
fn figures() -> Result<Vec<Cost>, String> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| format!("the counts cannot be read: {error}"))?;
    let counted = Counted::parse(&text)?;
    let costs = rows::all().filter(|row| counted.has(row)).map(|row| counted.cost(row));
    let costs = costs.collect::<Result<Vec<_>, _>>()?;
    if costs.is_empty() {
        return Err("no row was counted".to_owned());
    }
    show(&costs);
    Ok(costs)
}

fn record(file: &Path, valgrind: &str) -> Result<(), String> {
    let costs = figures()?;
    let known = Results::read(file).map_err(|error| error.to_string())?;
    let mut results = known.unwrap_or_else(|| Results::new(Environment::default()));
    results.environment.valgrind = Some(valgrind.to_owned());
    for cost in costs {
        match results.costs.iter_mut().find(|known| known.id == cost.id) {
            Some(known) => *known = cost,
            None => results.costs.push(cost),
        }
    }
    results.write(file).map_err(|error| error.to_string())
}

fn judge(file: &Path) -> Result<(), String> {
    let costs = figures()?;
    let known = Results::read(file).map_err(|error| error.to_string())?;
    let risen = gate::risen(&known.map(|results| results.costs).unwrap_or_default(), &costs);
    if risen.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\nmake it cheaper; or, where it is worth its cost, commit the new figure with the change: `cargo xtask bench --cost`",
        risen.join("\n")
    ))
}

fn show(costs: &[Cost]) {
    println!(
        "{:24} {:>8} {:>7} {:>7} {:>7}  {:>12}  {:>14}",
        "a message", "instr.", "at most", "alloc.", "at most", "bare", "cold start"
    );
    for cost in costs {
        let limit = |figure: fn(&Counts) -> f64| {
            cost.limit
                .as_ref()
                .map_or_else(String::new, |it| figure(it).to_string())
        };
        let pair = |counts: Option<Counts>| {
            counts.map_or_else(String::new, |it| format!("{} / {}", it.instructions, it.allocations))
        };
        let over = cost
            .limit
            .is_some_and(|limit| cost.instructions > limit.instructions || cost.allocations > limit.allocations);
        println!(
            "{:24} {:>8} {:>7} {:>7} {:>7}  {:>12}  {:>14}{}",
            cost.id,
            cost.instructions,
            limit(|it| it.instructions),
            cost.allocations,
            limit(|it| it.allocations),
            pair(cost.bare),
            pair(cost.cold),
            if over { "  over what it should be" } else { "" }
        );
    }
}
