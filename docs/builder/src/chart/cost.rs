//! The cost of the code: instructions and allocations a message, the counterpart beside them.

use std::fmt::Write as _;

use ruststream_bench::results::{Cost, Counts};

use super::scale::FromZero;
use super::table;
use crate::html::Text;
use crate::number::number;

/// A figure of what was counted.
type Figure = fn(&Counts) -> f64;

/// What is counted.
const UNITS: [(&str, Figure); 2] = [
    ("instructions", |counts| counts.instructions),
    ("allocations", |counts| counts.allocations),
];

/// The chart of a transport's costs, and its table.
pub(crate) fn charts(transport: &str, costs: &[&Cost]) -> String {
    if costs.is_empty() {
        return String::new();
    }
    chart(transport, costs) + &figures(costs)
}

/// What was counted in one row: the service, and what stands beside it.
fn counted(cost: &Cost) -> Vec<(&str, &str, Counts)> {
    let own = Counts {
        instructions: cost.instructions,
        allocations: cost.allocations,
    };
    // Beside others an outbox is measured, whose rows have no bare loop.
    let name = if cost.others.is_empty() {
        ("service", "RustStream service")
    } else {
        ("crate", "The crate's outbox")
    };
    let bare = cost.bare.iter().map(|counts| ("bare", "Bare loop", *counts));
    let others = cost
        .others
        .iter()
        .map(|(key, counts)| (key.as_str(), super::loops::name(key, "none"), *counts));
    std::iter::once((name.0, name.1, own))
        .chain(bare)
        .chain(others)
        .collect()
}

fn chart(transport: &str, costs: &[&Cost]) -> String {
    let scales = UNITS.map(|(_, of)| {
        let values = costs.iter().flat_map(|cost| counted(cost));
        FromZero::of(values.map(|(_, _, counts)| of(&counts)))
    });
    let mut html = format!(
        "<figure class=\"chart cost\" data-chart=\"cost\" id=\"cost-{transport}\" role=\"group\" aria-label=\"Cost of a message\">\
         <div class=\"axis\" aria-hidden=\"true\"><span class=\"name\"></span><span class=\"unit\">instructions a message</span>\
         <span class=\"unit\">allocations a message</span></div>"
    );
    for cost in costs {
        let _ = write!(
            html,
            "<div class=\"scenario\" role=\"group\" aria-label=\"{0}\" data-id=\"{1}\"><p class=\"title\">{0}</p>",
            Text(&cost.title),
            Text(&cost.id)
        );
        for (key, name, counts) in counted(cost) {
            html.push_str(&bars(key, name, &counts, &scales));
        }
        html.push_str("</div>");
    }
    html.push_str("</figure>\n\n");
    html
}

/// The bars of one loop, one for each unit.
fn bars(key: &str, name: &str, counts: &Counts, scales: &[FromZero]) -> String {
    let mut plots = String::new();
    let mut told = Vec::new();
    for ((unit, of), scale) in UNITS.into_iter().zip(scales) {
        let value = of(counts);
        told.push(format!("{} {unit}", number(value)));
        let _ = write!(plots, "<span class=\"plot\" data-unit=\"{unit}\">");
        if value > 0.0 {
            let _ = write!(
                plots,
                "<b class=\"bar\" style=\"left:0;width:{:.3}%\"></b>",
                scale.at(value)
            );
        }
        let _ = write!(plots, "</span><span class=\"said\">{}</span>", number(value));
    }
    format!(
        "<div class=\"loop of-{key}\" tabindex=\"0\" role=\"img\" aria-label=\"{name}: {} a message.\" data-loop=\"{key}\">\
         <span class=\"name\">{name}</span>{plots}</div>",
        told.join(" and "),
        key = Text(key),
        name = Text(name),
    )
}

fn figures(costs: &[&Cost]) -> String {
    let head = [
        "",
        "Instructions",
        "Allocations",
        "Cold start, instructions",
        "Cold start, allocations",
        "Counterpart, instructions",
        "Counterpart, allocations",
    ];
    let head: Vec<_> = head.map(str::to_owned).into();
    let rows: Vec<_> = costs
        .iter()
        .map(|cost| {
            let mut cells = vec![cost.title.clone(), number(cost.instructions), number(cost.allocations)];
            let cold = |of: fn(&Counts) -> f64| {
                cost.cold
                    .as_ref()
                    .map_or_else(|| "–".to_owned(), |counts| number(of(counts)))
            };
            cells.extend([cold(|counts| counts.instructions), cold(|counts| counts.allocations)]);
            let beside = |of: fn(&Counts) -> f64| {
                let counted = counted(cost);
                let texts: Vec<_> = counted[1..]
                    .iter()
                    .map(|(key, name, counts)| match *key {
                        "bare" => number(of(counts)),
                        _ => format!("{}: {}", name.to_lowercase(), number(of(counts))),
                    })
                    .collect();
                if texts.is_empty() {
                    "–".to_owned()
                } else {
                    texts.join(", ")
                }
            };
            cells.extend([
                beside(|counts| counts.instructions),
                beside(|counts| counts.allocations),
            ]);
            cells
        })
        .collect();
    table::table(&head, &rows)
}
