//! Loops against the bare loop: for each row and loop a bar from its best to its slowest round, around the baseline's best.

use std::fmt::Write as _;

use ruststream_bench::results::Scenario;

use super::{loops, measured, scale::Mark, scale::Ratios, table};
use crate::html::Text;
use crate::number::number;

/// The chart of some rows of a transport, and its table.
pub(crate) fn chart(transport: &str, part: &str, rows: &[&Scenario]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let ratios = rows.iter().flat_map(|row| {
        let base = base(row);
        row.loops
            .values()
            .flat_map(move |figures| [figures.best / base, figures.worst / base])
    });
    let scale = Ratios::of(ratios);
    let marks = scale.marks();
    let mut html = format!(
        "<figure class=\"chart versus\" data-chart=\"versus\" id=\"chart-{transport}-{part}\"><div class=\"axis\" aria-hidden=\"true\">\
         <span class=\"name\"></span><span class=\"plot\">{}</span><span class=\"said\"></span></div>",
        labels(&marks)
    );
    for row in rows {
        let _ = write!(
            html,
            "<div class=\"scenario\" role=\"group\" aria-label=\"{0}\" data-id=\"{1}\" id=\"{1}\"><p class=\"title\">{0}",
            Text(&row.title),
            Text(&row.id)
        );
        if let Some(bound) = loops::bound(row) {
            let _ = write!(html, " <small class=\"bound\">{bound}</small>");
        }
        html.push_str("</p>");
        for key in loops::of_row(row) {
            html.push_str(&bar(row, key, &scale, &marks));
        }
        html.push_str("</div>");
    }
    let _ = write!(
        html,
        "<figcaption>{}.</figcaption></figure>\n\n",
        Text(&sentence(&measured(rows)))
    );
    html + &figures(rows) + &explained(rows)
}

/// What the loops of each row do.
fn explained(rows: &[&Scenario]) -> String {
    let mut html = String::from("<details class=\"figures\"><summary>What the loops do</summary><dl>");
    for row in rows {
        let _ = write!(
            html,
            "<dt>{} <small><code>{}</code></small></dt><dd>{}</dd>",
            Text(&row.title),
            Text(&row.id),
            Text(&row.about)
        );
    }
    html + "</dl></details>\n"
}

fn base(row: &Scenario) -> f64 {
    row.loops.get(&row.baseline).map_or(f64::NAN, |figures| figures.best)
}

fn labels(marks: &[Mark]) -> String {
    let mut html = String::from("<span class=\"faster\">faster</span><span class=\"slower\">slower</span>");
    for Mark { value, at, label } in marks {
        let _ = write!(
            html,
            "<i class=\"mark\" style=\"left:{at:.3}%\" data-value=\"{value}\">{label}</i>"
        );
    }
    html
}

fn bar(row: &Scenario, key: &str, scale: &Ratios, marks: &[Mark]) -> String {
    let figures = &row.loops[key];
    let name = loops::name(key, &row.baseline);
    let base = base(row);
    let [best, median, worst] = [figures.best, figures.median, figures.worst].map(|rate| scale.at(rate / base));
    let said = loops::verdict(row, key).map(loops::comparison).unwrap_or_default();
    let hollow = if loops::is_indistinguishable(row, key) {
        " hollow"
    } else {
        ""
    };
    let mut told = format!("{name}: {}", loops::figures(figures));
    for comparison in loops::comparisons(row, key) {
        let _ = write!(told, "; {comparison}");
    }
    let mut lines = String::new();
    for Mark { at, label, .. } in marks {
        let class = if label == "0" { "line zero" } else { "line" };
        let _ = write!(lines, "<i class=\"{class}\" style=\"left:{at:.3}%\"></i>");
    }
    format!(
        "<div class=\"loop of-{key}\" tabindex=\"0\" role=\"img\" aria-label=\"{told}.\" data-loop=\"{key}\"><span class=\"name\">{name}</span>\
         <span class=\"plot\">{lines}<b class=\"bar\" style=\"left:{best:.3}%;width:{:.3}%\"></b><b class=\"notch\" style=\"left:{median:.3}%\"></b>\
         <b class=\"dot{hollow}\" style=\"left:{best:.3}%\"></b></span><span class=\"said\">{said}</span><span class=\"tip\">{told}.</span></div>",
        worst - best,
        told = Text(&told),
        key = Text(key),
        name = Text(name),
    )
}

/// The table: best round, and the median in brackets.
fn figures(rows: &[&Scenario]) -> String {
    let keys = loops::of(rows);
    let baseline = rows.first().map_or("bare", |row| row.baseline.as_str());
    let mut head = vec!["Best round (median), messages a second".to_owned()];
    head.extend(keys.iter().map(|key| loops::name(key, baseline).to_owned()));
    let body: Vec<_> = rows
        .iter()
        .map(|row| {
            let mut cells = vec![match loops::bound(row) {
                Some(bound) => format!("{} ({bound})", row.title),
                None => row.title.clone(),
            }];
            cells.extend(keys.iter().map(|key| match row.loops.get(*key) {
                Some(figures) => {
                    let mut cell = format!("{} ({})", number(figures.best), number(figures.median));
                    let compared = loops::verdict(row, key).map(loops::comparison);
                    for part in compared
                        .into_iter()
                        .chain(loops::by_hand(row, key).map(loops::compared))
                    {
                        let _ = write!(cell, ", {part}");
                    }
                    cell
                }
                None => "–".to_owned(),
            }));
            cells
        })
        .collect();
    table::table(&head, &body)
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
