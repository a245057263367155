//! The machine and the software that the figures were made with.

use std::fmt::Write as _;

use ruststream_bench::results::{Environment, Server};

use crate::html::Text;
use crate::number::number;

type Row = (String, String);

/// The table of the machine, with the servers of the page's transports.
pub(crate) fn table(environment: &Environment, transports: &[&str]) -> String {
    let shown = |transport: &&String| transports.contains(&transport.as_str());
    let mut rows = machine(environment);
    for (transport, server) in &environment.servers {
        if shown(&transport) {
            rows.extend(servers(super::name(transport), server));
        }
    }
    rows.extend(software(environment));
    let features = environment.features.iter().filter(|(transport, _)| shown(transport));
    rows.extend(features.map(|(transport, features)| {
        (
            format!("Features, {}", super::name(transport)),
            joined(features.iter().cloned()),
        )
    }));
    rows.extend(run(environment));

    let mut html = String::from("<div class=\"table-wrapper\"><table class=\"machine\"><tbody>");
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
            Text(name),
            Text(value)
        );
    }
    html.push_str("</tbody></table></div>\n\n");
    html.push_str("The figures are those of [`results.json`](results.json), which `cargo xtask bench` wrote.\n");
    html
}

fn machine(environment: &Environment) -> Vec<Row> {
    let gibibytes = environment.memory_bytes as f64 / f64::from(1 << 30);
    vec![
        row("Processor", &environment.cpu),
        row("Logical processors", environment.cores.to_string()),
        row("Memory", format!("{} GiB", number(gibibytes))),
        row("System", format!("{}, {}", environment.os, environment.kernel)),
    ]
}

fn servers(name: &str, server: &Server) -> [Row; 2] {
    let settings = server.settings.iter().map(|(key, value)| match value.as_str() {
        "" => format!("{key} = \"\""),
        value => format!("{key} = {value}"),
    });
    let round_trips = server.round_trip_us.iter();
    let round_trips = round_trips.map(|(command, us)| format!("{} µs ({command})", number(*us)));
    [
        row(name, joined(std::iter::once(server.version.clone()).chain(settings))),
        row(&format!("{name}, round trip"), joined(round_trips)),
    ]
}

fn software(environment: &Environment) -> Vec<Row> {
    let profile = &environment.profile;
    let clients = environment
        .clients
        .iter()
        .map(|(client, version)| format!("{client} {version}"));
    vec![
        row("Compiler", &environment.rustc),
        row("Clients", joined(clients)),
        row(
            "Profile",
            format!(
                "{} (opt-level = {}, lto = {}, codegen-units = {})",
                profile.name, profile.opt_level, profile.lto, profile.codegen_units
            ),
        ),
        row("RUSTFLAGS", or_none(&environment.rustflags)),
        row("Valgrind", environment.valgrind.as_deref().unwrap_or_default()),
    ]
}

fn run(environment: &Environment) -> [Row; 3] {
    let processors = if environment.pinned {
        "one, shared by loops and servers"
    } else {
        "all are free"
    };
    let [one, five, fifteen] = environment.load_average.map(|load| format!("{load:.2}"));
    [
        row("Processors in use", processors),
        row(
            "Load average",
            format!("{one} / {five} / {fifteen} over 1, 5 and 15 minutes when the last run began"),
        ),
        row("Last run", format!("{}, at {}", environment.date, environment.commit)),
    ]
}

fn row(name: &str, value: impl Into<String>) -> Row {
    (name.to_owned(), value.into())
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}
