//! Throughput over workers: a line for each loop, its dots at the best rounds.

use std::fmt::Write as _;

use ruststream_bench::results::{Loop, Scenario};

use super::scale::{FromZero, Mark};
use super::{loops, table};
use crate::html::Text;
use crate::number::number;

/// The series that a row belongs to: its id without the `.w4` at its end.
fn series(row: &Scenario) -> Option<&str> {
    let (series, workers) = row.id.rsplit_once(".w")?;
    workers.parse::<usize>().is_ok().then_some(series)
}

/// True where the row is one of several of a series: a single point makes no line.
pub(crate) fn is_in_series(row: &Scenario, all: &[&Scenario]) -> bool {
    series(row).is_some_and(|name| all.iter().filter(|other| series(other) == Some(name)).count() > 1)
}

/// A chart for each series of the rows, in their order, and its table.
pub(crate) fn charts(rows: &[&Scenario]) -> String {
    let mut html = String::new();
    let mut drawn: Vec<&str> = Vec::new();
    for name in rows.iter().filter_map(|row| series(row)) {
        if !drawn.contains(&name) {
            drawn.push(name);
            let mut rows: Vec<_> = rows.iter().copied().filter(|row| series(row) == Some(name)).collect();
            rows.sort_by_key(|row| row.workers);
            html.push_str(&chart(name, &rows));
        }
    }
    html
}

fn chart(name: &str, rows: &[&Scenario]) -> String {
    let keys = loops::of(rows);
    let baseline = rows.first().map_or("bare", |row| row.baseline.as_str());
    let scale = FromZero::of(
        rows.iter()
            .flat_map(|row| row.loops.values().map(|figures| figures.best)),
    );
    let title = title(rows);
    let mut html = format!(
        "<figure class=\"chart workers\" data-chart=\"workers\" id=\"{0}\" data-series=\"{0}\" role=\"group\" aria-label=\"{1}, over workers\">\
         <p class=\"title\">{1}, messages a second over workers</p>{2}<div class=\"field\">",
        Text(name),
        Text(&title),
        legend(&keys, baseline)
    );
    for Mark { value, at, label } in scale.marks() {
        let _ = write!(
            html,
            "<i class=\"level\" style=\"bottom:{at:.3}%\" data-value=\"{value}\"><span>{label}</span></i>"
        );
    }
    html.push_str("<svg viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\" aria-hidden=\"true\">");
    for (lane, key) in keys.iter().enumerate() {
        let points = points(rows, key).map(|(at, _, figures)| {
            let left = across(at, rows.len(), lane, keys.len());
            format!("{left:.3},{:.3}", 100.0 - scale.at(figures.best))
        });
        let points: Vec<_> = points.collect();
        let _ = write!(
            html,
            "<polyline class=\"of-{}\" points=\"{}\"></polyline>",
            Text(key),
            points.join(" ")
        );
    }
    html.push_str("</svg>");
    for (lane, key) in keys.iter().enumerate() {
        for (at, row, figures) in points(rows, key) {
            html.push_str(&point(
                row,
                key,
                figures,
                across(at, rows.len(), lane, keys.len()),
                &scale,
            ));
        }
    }
    for (at, row) in rows.iter().enumerate() {
        let left = middle(at, rows.len());
        let _ = write!(
            html,
            "<span class=\"category\" style=\"left:{left:.3}%\">{}</span>",
            row.workers
        );
    }
    html.push_str("</div></figure>\n\n");
    html + &figures(rows, &keys, baseline)
}

/// What the titles of a series' rows have in common.
fn title(rows: &[&Scenario]) -> String {
    let first = rows.first().map_or("", |row| row.title.as_str());
    let workers = rows.first().map_or(1, |row| row.workers);
    let endings = [
        format!("workers({workers})"),
        format!("{workers} workers"),
        format!("{workers} worker"),
    ];
    let cut = endings
        .iter()
        .find_map(|ending| first.strip_suffix(ending.as_str()))
        .unwrap_or(first);
    cut.trim_end_matches([' ', ',', ':']).to_owned()
}

fn legend(keys: &[&str], baseline: &str) -> String {
    let mut html = String::from("<ul class=\"legend\">");
    for key in keys {
        let _ = write!(
            html,
            "<li class=\"of-{0}\"><svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><line x1=\"0\" y1=\"4\" x2=\"24\" y2=\"4\" \
             class=\"of-{0}\"></line></svg>{1}</li>",
            Text(key),
            Text(loops::name(key, baseline))
        );
    }
    html + "</ul>"
}

fn points<'a>(rows: &'a [&'a Scenario], key: &'a str) -> impl Iterator<Item = (usize, &'a Scenario, &'a Loop)> {
    rows.iter()
        .enumerate()
        .filter_map(move |(at, row)| row.loops.get(key).map(|figures| (at, *row, figures)))
}

fn middle(at: usize, count: usize) -> f64 {
    (at as f64 + 0.5) / count as f64 * 100.0
}

/// The place of a point from the left: the loops stand a little beside each other, so that none hides another.
fn across(at: usize, count: usize, lane: usize, lanes: usize) -> f64 {
    middle(at, count) + (lane as f64 - (lanes as f64 - 1.0) / 2.0) * 2.4
}

fn point(row: &Scenario, key: &str, figures: &Loop, left: f64, scale: &FromZero) -> String {
    let workers = if row.workers == 1 { "worker" } else { "workers" };
    let mut told = format!(
        "{}, {} {workers}: {}",
        loops::name(key, &row.baseline),
        row.workers,
        loops::figures(figures)
    );
    for comparison in loops::comparisons(row, key) {
        let _ = write!(told, "; {comparison}");
    }
    let (best, worst) = (scale.at(figures.best), scale.at(figures.worst));
    let side = if left > 50.0 { " to-left" } else { "" };
    format!(
        "<b class=\"point of-{key}{side}\" style=\"left:{left:.3}%;bottom:{worst:.3}%;height:{:.3}%\" tabindex=\"0\" role=\"img\" aria-label=\"{told}.\" \
         data-loop=\"{key}\" data-workers=\"{}\"><i class=\"dot\"></i><span class=\"tip\">{told}.</span></b>",
        best - worst,
        row.workers,
        told = Text(&told),
        key = Text(key),
    )
}

fn figures(rows: &[&Scenario], keys: &[&str], baseline: &str) -> String {
    let mut head = vec!["Workers: best round (median), messages a second".to_owned()];
    head.extend(keys.iter().map(|key| loops::name(key, baseline).to_owned()));
    let body: Vec<_> = rows
        .iter()
        .map(|row| {
            let mut cells = vec![row.workers.to_string()];
            cells.extend(keys.iter().map(|key| match row.loops.get(*key) {
                Some(figures) => format!("{} ({})", number(figures.best), number(figures.median)),
                None => "–".to_owned(),
            }));
            cells
        })
        .collect();
    table::table(&head, &body)
}
