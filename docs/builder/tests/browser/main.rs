//! The built pages in a real browser: what is drawn is compared with the figures it was drawn from.

#![allow(
    clippy::unwrap_used,
    reason = "a test says by its panic what went wrong, in its helpers too"
)]

mod devtools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ruststream_bench::results::{Conclusion, Counts, PATH, Results, Scenario};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use devtools::{Browser, View, Window};

/// Half a pixel of rounding, twice.
const PIXEL: f64 = 1.0;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn fixture() -> PathBuf {
    root().join("docs/builder/tests/fixture/results.json")
}

/// The site, with the figures of a file.
fn build(results: &Path) -> TempDir {
    let out = tempfile::tempdir().unwrap();
    site::build(&root(), results, out.path()).unwrap_or_else(|error| panic!("{error:#}"));
    out
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "html") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

async fn ask<T: DeserializeOwned>(window: &mut Window<'_>, question: &str) -> T {
    let answer = window
        .evaluate(&format!("{}.{question}()", include_str!("look.js")))
        .await;
    serde_json::from_value(answer).unwrap()
}

#[derive(Debug, Deserialize)]
struct Chart {
    kind: String,
    id: String,
    series: Option<String>,
    seen: bool,
    marks: Vec<Mark>,
    levels: Vec<Mark>,
    loops: Vec<Drawn>,
}

#[derive(Debug, Deserialize)]
struct Mark {
    value: f64,
    at: f64,
}

/// One loop as it is drawn.
#[derive(Debug, Deserialize)]
struct Drawn {
    id: Option<String>,
    #[serde(rename = "loop")]
    key: String,
    workers: usize,
    label: String,
    role: String,
    said: String,
    hollow: bool,
    bar: Option<[f64; 2]>,
    units: Vec<Unit>,
    dot: Option<Point>,
    notch: Option<f64>,
    bottom: f64,
}

/// One unit of a loop's cost.
#[derive(Debug, Deserialize)]
struct Unit {
    name: String,
    plot: [f64; 2],
    bar: Option<[f64; 2]>,
    said: String,
}

#[derive(Debug, Deserialize)]
struct Point {
    x: f64,
    y: f64,
}

/// The pixel at which `value` has to stand on an axis that `marks` label, by the two that are farthest apart.
fn place(marks: &[Mark], value: f64, of: impl Fn(f64) -> f64) -> f64 {
    let by = |mark: &&Mark, other: &&Mark| mark.value.total_cmp(&other.value);
    let (low, high) = (marks.iter().min_by(by).unwrap(), marks.iter().max_by(by).unwrap());
    let part = (of(value) - of(low.value)) / (of(high.value) - of(low.value));
    low.at + part * (high.at - low.at)
}

fn assert_near(what: &str, is: f64, should: f64) {
    assert!(
        (is - should).abs() <= PIXEL,
        "{what} stands at {is:.1} and should at {should:.1}"
    );
}

/// The number as pages write it, without decimals from 100 on.
fn written(value: f64) -> String {
    assert!(value >= 100.0, "rates below 100 are not in these results");
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The part of the figures that the charts of one page show, and what was found of it.
struct Checked {
    rows: BTreeMap<String, usize>,
    costs: BTreeMap<String, usize>,
}

async fn check_page(window: &mut Window<'_>, page: &Path, results: &Results, checked: &mut Checked) {
    assert_eq!(window.open(page).await, Vec::<String>::new(), "{}", page.display());
    let charts: Vec<Chart> = ask(window, "charts").await;
    for chart in &charts {
        assert!(chart.seen, "{} is not seen", chart.id);
        assert!(!chart.loops.is_empty(), "{} is empty", chart.id);
        match chart.kind.as_str() {
            "versus" => check_versus(chart, results, checked),
            "workers" => check_workers(chart, results),
            "cost" => check_costs(chart, results, checked),
            other => panic!("a chart of the kind {other} is checked by no one"),
        }
    }
    let tables: Vec<Vec<Vec<String>>> = ask(window, "tables").await;
    let drawn = |row: &&Scenario| {
        charts
            .iter()
            .any(|chart| chart.loops.iter().any(|of| of.id.as_ref() == Some(&row.id)))
    };
    for row in results.scenarios.iter().filter(drawn) {
        check_table(&tables, row);
    }
}

fn check_versus(chart: &Chart, results: &Results, checked: &mut Checked) {
    for drawn in &chart.loops {
        let id = drawn.id.as_deref().unwrap();
        let row = results.scenarios.iter().find(|row| row.id == id).unwrap();
        *checked.rows.entry(id.to_owned()).or_default() += 1;
        let (base, figures) = (row.loops[&row.baseline].best, &row.loops[&drawn.key]);
        let name = format!("{} of {id}", drawn.key);
        let at = |rate: f64| place(&chart.marks, rate / base, f64::ln);
        let (bar, dot) = (drawn.bar.unwrap(), drawn.dot.as_ref().unwrap());
        assert_near(&format!("the dot of {name}"), dot.x, at(figures.best));
        assert_near(
            &format!("the notch of {name}"),
            drawn.notch.unwrap(),
            at(figures.median),
        );
        assert_near(&format!("the left end of {name}"), bar[0], at(figures.best));
        if at(figures.worst) - at(figures.best) >= 1.0 {
            assert_near(&format!("the right end of {name}"), bar[1], at(figures.worst));
        }
        let zero = chart
            .marks
            .iter()
            .find(|mark| (mark.value - 1.0).abs() < 1e-9)
            .unwrap()
            .at;
        if drawn.key == row.baseline {
            assert_near(&format!("zero of {id}"), dot.x, zero);
        } else {
            let verdict = &row.verdicts[&drawn.key];
            assert_eq!(drawn.hollow, verdict.verdict == Conclusion::Indistinguishable, "{name}");
            let word = match verdict.verdict {
                Conclusion::Indistinguishable => "indistinguishable",
                Conclusion::Faster if verdict.ratio >= 1.5 => "times as fast",
                Conclusion::Faster => "% faster",
                Conclusion::Slower => "% slower",
            };
            assert!(drawn.said.contains(word), "{name}: {}", drawn.said);
            if figures.best < base * 0.97 {
                assert!(dot.x > zero, "{name} is slower and stands left of zero");
            }
        }
        let by_hand = row
            .by_hand
            .get(&drawn.key)
            .filter(|_| drawn.key == "service" || drawn.key == "crate");
        if let Some(by_hand) = by_hand {
            let other = if by_hand.against == "hand" {
                "the outbox by hand"
            } else {
                "the tuned loop"
            };
            assert!(
                drawn.label.contains(other),
                "{name} is not held against {other}: {}",
                drawn.label
            );
        }
        assert_told(&name, drawn, &[figures.best, figures.median, figures.worst]);
    }
}

/// What a screen reader says of a mark has its figures.
fn assert_told(name: &str, drawn: &Drawn, figures: &[f64]) {
    assert_eq!(drawn.role, "img", "{name}");
    for figure in figures {
        assert!(
            drawn.label.contains(&written(*figure)),
            "{name}: {} has no {figure}",
            drawn.label
        );
    }
}

fn check_workers(chart: &Chart, results: &Results) {
    let series = chart.series.as_deref().unwrap();
    for drawn in &chart.loops {
        let id = format!("{series}.w{}", drawn.workers);
        let row = results.scenarios.iter().find(|row| row.id == id).unwrap();
        let figures = &row.loops[&drawn.key];
        let name = format!("{} of {id}", drawn.key);
        let at = |rate| place(&chart.levels, rate, |rate| rate);
        assert_near(
            &format!("the dot of {name}"),
            drawn.dot.as_ref().unwrap().y,
            at(figures.best),
        );
        assert_near(&format!("the slowest of {name}"), drawn.bottom, at(figures.worst));
        assert_told(&name, drawn, &[figures.best, figures.median, figures.worst]);
    }
    let expected: usize = results
        .scenarios
        .iter()
        .filter(|row| row.id == format!("{series}.w{}", row.workers))
        .map(|row| row.loops.len())
        .sum();
    assert_eq!(chart.loops.len(), expected, "{series} lacks points");
}

fn check_costs(chart: &Chart, results: &Results, checked: &mut Checked) {
    // Bars of one unit stand to each other as their values: pixels for one.
    let mut scales = BTreeMap::new();
    for drawn in &chart.loops {
        let id = drawn.id.as_deref().unwrap();
        let cost = results.costs.iter().find(|cost| cost.id == id).unwrap();
        *checked.costs.entry(id.to_owned()).or_default() += 1;
        let counts = match drawn.key.as_str() {
            "bare" => cost.bare.unwrap(),
            "service" | "crate" => Counts {
                instructions: cost.instructions,
                allocations: cost.allocations,
            },
            other => cost.others[other],
        };
        assert_eq!(drawn.units.len(), 2, "{} of {id}", drawn.key);
        for unit in &drawn.units {
            let name = format!("{} of {} of {id}", unit.name, drawn.key);
            let value = match unit.name.as_str() {
                "instructions" => counts.instructions,
                _ => counts.allocations,
            };
            assert_eq!(unit.bar.is_some(), value > 0.0, "{name}");
            assert!(
                drawn.label.contains(&format!("{} {}", unit.said, unit.name)),
                "{name}: {}",
                drawn.label
            );
            if value >= 100.0 {
                assert_eq!(unit.said, written(value), "{name}");
            } else {
                let said: f64 = unit.said.parse().unwrap();
                assert!((said - value).abs() <= 0.05, "{name}: {} for {value}", unit.said);
            }
            let Some(bar) = unit.bar else { continue };
            assert_near(&format!("the beginning of {name}"), bar[0], unit.plot[0]);
            assert!(bar[1] <= unit.plot[1] + PIXEL, "{name} leaves its plot");
            if bar[1] - bar[0] > 20.0 {
                let own = (bar[1] - bar[0]) / value;
                let scale = *scales.entry(unit.name.clone()).or_insert(own);
                assert!(
                    (own / scale - 1.0).abs() < 0.1,
                    "{name}: {own} px for one, others {scale}"
                );
            }
        }
    }
}

/// Each loop of the row stands in a table with its best and its median round.
fn check_table(tables: &[Vec<Vec<String>>], row: &Scenario) {
    let of_row = |cells: &&Vec<String>| cells.first().is_some_and(|first| first.starts_with(&row.title));
    let cells = tables.iter().flatten().find(of_row);
    let cells = cells.unwrap_or_else(|| panic!("no table has a row of {}", row.id));
    for figures in row.loops.values() {
        let text = format!("{} ({})", written(figures.best), written(figures.median));
        assert!(
            cells.iter().any(|cell| cell.starts_with(&text)),
            "{}: {text} is not in {cells:?}",
            row.id
        );
    }
}

async fn check_charts(results_file: &Path) {
    let site = build(results_file);
    let results = Results::read(results_file).unwrap().unwrap();
    let mut browser = Browser::start();
    for view in [View::DESKTOP, View::PHONE_AT_NIGHT] {
        let mut window = browser.window(view).await;
        let mut checked = Checked {
            rows: BTreeMap::new(),
            costs: BTreeMap::new(),
        };
        for page in pages(&site.path().join("benchmarks")) {
            check_page(&mut window, &page, &results, &mut checked).await;
        }
        for row in &results.scenarios {
            assert_eq!(
                checked.rows.get(&row.id),
                Some(&row.loops.len()),
                "{} is not drawn once, each of its loops",
                row.id
            );
        }
        for cost in &results.costs {
            let loops = 1 + usize::from(cost.bare.is_some()) + cost.others.len();
            assert_eq!(
                checked.costs.get(&cost.id),
                Some(&loops),
                "{} is not drawn once, each of its loops",
                cost.id
            );
        }
    }
}

#[tokio::test]
async fn charts_match_the_figures_that_they_are_drawn_from() {
    check_charts(&fixture()).await;
}

#[tokio::test]
async fn the_published_charts_match_the_published_figures() {
    check_charts(&root().join(PATH)).await;
}

#[tokio::test]
async fn every_page_is_shown_without_an_error_without_a_network_and_fits_its_window() {
    let site = build(&fixture());
    let mut browser = Browser::start();
    for view in [View::DESKTOP, View::PHONE_AT_NIGHT] {
        let mut window = browser.window(view).await;
        for page in pages(site.path()) {
            let name = page.strip_prefix(site.path()).unwrap().display().to_string();
            // The table of contents for browsers without scripts, which is shown in a frame.
            if name == "toc.html" {
                continue;
            }
            assert_eq!(window.open(&page).await, Vec::<String>::new(), "{name}, {view:?}");
            let outside: Vec<String> = ask(&mut window, "overflow").await;
            assert_eq!(outside, Vec::<String>::new(), "{name}, {view:?}");
            let faint: Vec<String> = ask(&mut window, "faint").await;
            assert_eq!(faint, Vec::<String>::new(), "{name}, {view:?}");
        }
    }
}

#[tokio::test]
async fn the_search_finds_a_page_though_the_site_is_opened_from_disk() {
    let site = build(&fixture());
    let mut browser = Browser::start();
    let mut window = browser.window(View::DESKTOP).await;
    assert_eq!(window.open(&site.path().join("index.html")).await, Vec::<String>::new());
    let found = "new Promise(found => {
        const list = document.getElementById('mdbook-searchresults');
        new MutationObserver(() => {
            const links = [...list.querySelectorAll('a')].map(link => link.getAttribute('href'));
            if (links.length > 0) found(links);
        }).observe(list, { childList: true, subtree: true });
        document.getElementById('mdbook-search-toggle').click();
        const bar = document.getElementById('mdbook-searchbar');
        bar.value = 'dead letters';
        bar.dispatchEvent(new KeyboardEvent('keyup', { key: 's', bubbles: true }));
        bar.dispatchEvent(new InputEvent('input', { bubbles: true }));
    })";
    let links: Vec<String> = serde_json::from_value(window.evaluate(found).await).unwrap();
    assert!(
        links.iter().any(|link| link.starts_with("concepts/retries.html")),
        "{links:?}"
    );
}

#[derive(Debug, Deserialize)]
struct Focused {
    label: Option<String>,
    told: bool,
    page: String,
}

#[tokio::test]
async fn figures_are_told_where_one_points_and_where_the_keys_go() {
    let site = build(&fixture());
    let page = site.path().join("benchmarks/memory.html");
    let mut browser = Browser::start();
    let mut window = browser.window(View::DESKTOP).await;
    window.open(&page).await;

    let tips =
        "[...document.querySelectorAll('.tip')].filter(tip => tip.checkVisibility()).map(tip => tip.textContent)";
    assert_eq!(
        window.evaluate(tips).await,
        serde_json::json!([]),
        "nothing is told unasked"
    );
    let spot = "(() => { const mark = document.querySelector('.loop'); mark.scrollIntoView({block: 'center'}); \
                const box = mark.getBoundingClientRect(); return [box.left + 20, box.top + 5, mark.getAttribute('aria-label')] })()";
    let spot = window.evaluate(spot).await;
    window.point(spot[0].as_f64().unwrap(), spot[1].as_f64().unwrap()).await;
    assert_eq!(
        window.evaluate(tips).await,
        serde_json::json!([spot[2]]),
        "what is pointed at is told"
    );
    window.point(0.0, 0.0).await;

    window.evaluate("document.querySelector('.chart .loop').focus()").await;
    let labels = "[...document.querySelector('.chart').querySelectorAll('[tabindex]')].map(mark => mark.getAttribute('aria-label'))";
    let labels: Vec<String> = serde_json::from_value(window.evaluate(labels).await).unwrap();
    assert!(labels.len() > 2);
    for label in &labels {
        let focused: Focused = ask(&mut window, "focused").await;
        assert_eq!(focused.label.as_ref(), Some(label));
        assert!(focused.told, "{label} has the focus and is not told");
        window.press("ArrowRight").await;
    }
    let focused: Focused = ask(&mut window, "focused").await;
    assert_eq!(focused.label.as_ref(), labels.last(), "the last mark is the end");
    assert!(focused.page.ends_with("/memory.html"), "the arrows turned the page");

    window.press("Escape").await;
    assert!(
        !ask::<Focused>(&mut window, "focused").await.told,
        "Escape hides the figures"
    );
    window.press("Home").await;
    assert_eq!(
        ask::<Focused>(&mut window, "focused").await.label.as_ref(),
        labels.first()
    );
    window.press("Tab").await;
    let focused: Focused = ask(&mut window, "focused").await;
    assert!(
        !focused.label.is_some_and(|label| labels.contains(&label)),
        "a chart is one stop of Tab"
    );
}
