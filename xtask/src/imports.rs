//! The direction of imports: the rooms of `ruststream` look one way, and transport crates see the contract only.
//!
//! A scan of the text, not of the compiled crate: it reads the paths that start at a crate's root (`crate::room::…`,
//! `ruststream::room::…`, and `super::…` where that leads to the root). Comments, strings and tests are left out. That is
//! enough to catch what a reader would call an import, and it needs neither a build nor a dependency.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::code::{code, is_word};

/// The rooms of `ruststream`, the lowest first. A room imports from its own line and from those above it, without circles.
const ROOMS: &[&[&str]] = &[
    &["message", "codec"],
    &["transport", "error"],
    &["handler", "policy", "layer", "observe"],
    &["runtime"],
    &["app", "memory"],
    &["testing", "asyncapi", "conformance"],
];

/// Modules that share the room of another.
const SHARED: &[(&str, &str)] = &[("publish", "handler")];

/// Files at the root that only gather what the rooms hold.
const GATHERING: &[&str] = &["lib", "prelude"];

/// Rooms that are transports, and so see no more than a transport crate does.
const TRANSPORT_ROOMS: &[&str] = &["memory"];

/// What a transport may import of `ruststream`.
const CONTRACT: &[&str] = &["transport", "message", "error"];

/// Files of a transport crate that hold what its handlers may ask for, and so see how a handler asks.
const EXTRACTORS: &str = "extract.rs";

/// Parts of transport crates that are no transports but tools for the authors of services, over any transport: they see what those see.
const TOOLS: &[(&str, &str)] = &[("ruststream-sqlx", "outbox")];

/// What such tools may import beside the contract.
const FOR_SERVICES: &[&str] = &["codec", "handler", "publish", "policy", "app"];

/// Crates beside `ruststream` that are no transports.
const NO_TRANSPORTS: &[&str] = &["ruststream-macros", "ruststream-cli"];

/// Checks all crates under `root`; answers with the number of files read, or with every import that is wrong.
pub(crate) fn check(root: &Path) -> Result<String, String> {
    let crates = root.join("crates");
    let mut wrong = Vec::new();

    let framework = read_sources(&crates.join("ruststream/src"))?;
    let mut count = framework.len();
    wrong.extend(check_rooms(&framework));

    for folder in entries(&crates)? {
        let name = file_name(&folder);
        if name.starts_with("ruststream-") && !NO_TRANSPORTS.contains(&name.as_str()) {
            let sources = read_sources(&folder.join("src"))?;
            count += sources.len();
            wrong.extend(check_transport_crate(&name, &sources));
        }
    }

    if wrong.is_empty() {
        Ok(format!("{count} files"))
    } else {
        Err(format!(
            "{} wrong\n  {}\nthe rooms and their order stand in xtask/src/imports.rs",
            wrong.len(),
            wrong.join("\n  ")
        ))
    }
}

/// A source file: where it is below its `src`, and its code.
struct Source {
    path: PathBuf,
    code: String,
}

impl Source {
    fn new(path: PathBuf, text: &str) -> Self {
        Self { path, code: code(text) }
    }

    /// The modules that lead to it: `runtime/mod.rs` is `[runtime]`, `runtime/pump.rs` is `[runtime, pump]`.
    fn modules(&self) -> Vec<String> {
        let mut modules: Vec<String> = self
            .path
            .with_extension("")
            .iter()
            .map(|part| part.to_string_lossy().into())
            .collect();
        if modules.last().is_some_and(|last| last == "mod") {
            modules.pop();
        }
        modules
    }

    /// The macros that it exports.
    fn exported_macros(&self) -> impl Iterator<Item = String> + '_ {
        let after = self.code.split("#[macro_export]").skip(1);
        after.filter_map(|rest| Some(word(rest.split_once("macro_rules!")?.1.trim_start()).to_owned()))
    }

    /// What it names at the root of its crate, with the line of each.
    fn imports(&self) -> Vec<(usize, String)> {
        let mut found = names_after(&self.code, "crate::");
        // The crate may know itself by its own name.
        found.extend(names_after(&self.code, "ruststream::"));
        let to_root = "super::".repeat(self.modules().len());
        found.extend(names_after(&self.code, &to_root));
        found.sort();
        found
    }
}

fn check_rooms(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut edges: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    // A macro that is exported stands at the root of its crate, wherever it is written.
    let mut exported: BTreeMap<String, String> = BTreeMap::new();
    for source in sources {
        let modules = source.modules();
        let room = room_of(modules.first().map_or("lib", String::as_str));
        exported.extend(source.exported_macros().map(|name| (name, room.to_owned())));
    }
    for source in sources {
        let modules = source.modules();
        let room = room_of(modules.first().map_or("lib", String::as_str));
        if GATHERING.contains(&room) {
            continue;
        }
        let Some(height) = height(room) else {
            wrong.push(format!(
                "{}: `{room}` has no place among the rooms yet; give it one",
                source.path.display()
            ));
            continue;
        };
        for (line, name) in source.imports() {
            if exported.get(&name).is_some_and(|home| home == room) {
                continue;
            }
            let name = room_of(&name).to_owned();
            if name == room {
                continue;
            }
            let place = format!("ruststream/src/{}:{line}", source.path.display());
            let reason = match self::height(&name) {
                None => format!("`{room}` imports `{name}` past its room; name the room that holds it"),
                Some(_) if TRANSPORT_ROOMS.contains(&room) && !CONTRACT.contains(&name.as_str()) => {
                    format!(
                        "`{room}` imports `{name}`; a transport sees {} only",
                        CONTRACT.join(", ")
                    )
                }
                Some(other) if other > height => {
                    format!("`{room}` imports `{name}`, which stands above it; turn the dependency round")
                }
                Some(_) => {
                    edges.entry(room.to_owned()).or_default().entry(name).or_insert(place);
                    continue;
                }
            };
            wrong.push(format!("{place}: {reason}"));
        }
    }
    wrong.extend(
        circle(&edges).map(|circle| format!("rooms import each other in a circle:\n    {}", circle.join("\n    "))),
    );
    wrong
}

/// The room that a module at the root belongs to.
fn room_of(module: &str) -> &str {
    let shared = SHARED.iter().find(|(guest, _)| *guest == module);
    shared.map_or(module, |(_, host)| host)
}

fn height(room: &str) -> Option<usize> {
    ROOMS.iter().position(|rooms| rooms.contains(&room))
}

/// One circle among the edges (room, room it imports, place where), if there is any: a line for each import in it.
fn circle(edges: &BTreeMap<String, BTreeMap<String, String>>) -> Option<Vec<String>> {
    fn walk<'a>(
        room: &'a str,
        edges: &'a BTreeMap<String, BTreeMap<String, String>>,
        way: &mut Vec<&'a str>,
        left: &mut BTreeSet<&'a str>,
    ) -> bool {
        if way.contains(&room) {
            way.push(room);
            return true;
        }
        if left.contains(room) {
            return false;
        }
        way.push(room);
        let found = edges
            .get(room)
            .is_some_and(|to| to.keys().any(|next| walk(next, edges, way, left)));
        if !found {
            way.pop();
            left.insert(room);
        }
        found
    }

    let mut left = BTreeSet::new();
    for room in edges.keys() {
        let mut way = Vec::new();
        if walk(room, edges, &mut way, &mut left) {
            let start = way.iter().position(|step| Some(step) == way.last())?;
            let lines = way[start..].windows(2);
            return Some(
                lines
                    .map(|pair| format!("{}: `{}` imports `{}`", edges[pair[0]][pair[1]], pair[0], pair[1]))
                    .collect(),
            );
        }
    }
    None
}

fn check_transport_crate(name: &str, sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources {
        let extracts = source.path.ends_with(EXTRACTORS);
        let tool = TOOLS
            .iter()
            .any(|(known, part)| *known == name && source.path.starts_with(part));
        for (line, room) in names_after(&source.code, "ruststream::") {
            let seen = CONTRACT.contains(&room.as_str())
                || (extracts && room == "handler")
                || (tool && FOR_SERVICES.contains(&room.as_str()));
            if !seen {
                wrong.push(format!(
                    "{name}/src/{}:{line}: imports `ruststream::{room}`; a transport crate sees {} only",
                    source.path.display(),
                    CONTRACT.join(", ")
                ));
            }
        }
    }
    wrong
}

/// The names that stand right after `prefix` in `code`, a `{group}` opened up, with their lines. Macro calls are left out.
fn names_after(code: &str, prefix: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let before = &code[..at];
        // `self::super::` and names that end in `crate` start no path at a root.
        let longer_name = before.ends_with(is_word);
        let longer_path = prefix.starts_with("super") && before.ends_with("::");
        if longer_name || longer_path {
            continue;
        }
        let line = before.matches('\n').count() + 1;
        let rest = code[at + prefix.len()..].trim_start();
        let names = match rest.strip_prefix('{') {
            Some(group) => group_heads(group),
            None => vec![word(rest)],
        };
        let is_macro = names.len() == 1 && rest[names[0].len()..].starts_with('!');
        if !is_macro {
            let modules = names.into_iter().filter(|name| !matches!(*name, "" | "self" | "super"));
            found.extend(modules.map(|name| (line, name.to_owned())));
        }
    }
    found
}

/// The first word of each member of a group whose opening brace has been read.
fn group_heads(group: &str) -> Vec<&str> {
    let mut heads = vec![word(group.trim_start())];
    let mut depth = 1;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => heads.push(word(group[at + 1..].trim_start())),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    heads
}

fn word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

/// The sources below `folder`, files of tests left out, in the order of their paths.
fn read_sources(folder: &Path) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in entries(&next)? {
            let name = file_name(&entry);
            if entry.is_dir() && name != "tests" {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") && name != "tests.rs" {
                let text = fs::read_to_string(&entry).map_err(|error| format!("{}: {error}", entry.display()))?;
                let path = entry.strip_prefix(folder).unwrap_or(&entry).to_owned();
                sources.push(Source::new(path, &text));
            }
        }
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(sources)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(unreadable)?;
    entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(unreadable))
        .collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(sources: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> = sources
            .iter()
            .map(|(path, text)| Source::new(path.into(), text))
            .collect();
        check_rooms(&sources)
    }

    #[track_caller]
    fn assert_one(wrong: &[String], parts: &[&str]) {
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        for part in parts {
            assert!(wrong[0].contains(part), "{wrong:?} does not say {part:?}");
        }
    }

    #[test]
    fn a_room_may_look_down_and_at_itself() {
        let source = "use crate::transport::{Fetch, Settle};\nuse crate::runtime::Lane;\nuse super::Lane;\n";
        assert_eq!(rooms(&[("runtime/pump.rs", source)]), Vec::<String>::new());
    }

    #[test]
    fn a_room_may_not_look_up() {
        let wrong = rooms(&[("transport/fetch.rs", "//! Takes.\n\nuse crate::runtime::Lane;\n")]);
        assert_one(&wrong, &["transport/fetch.rs:3", "`transport` imports `runtime`"]);
    }

    #[test]
    fn a_path_in_the_middle_of_the_code_counts() {
        let wrong = rooms(&[("policy/retry.rs", "fn f() {\n    crate::app::run();\n}\n")]);
        assert_one(&wrong, &["policy/retry.rs:2", "`app`"]);
    }

    #[test]
    fn a_macro_belongs_to_the_room_that_exports_it() {
        let text = "#[macro_export]\nmacro_rules! suite { () => { $crate::suite!() } }\npub use crate::suite as run;\n";
        assert!(rooms(&[("conformance/mod.rs", text)]).is_empty());
        assert_one(
            &rooms(&[("conformance/mod.rs", text), ("policy/retry.rs", "use crate::suite;\n")]),
            &["policy/retry.rs", "suite"],
        );
    }

    #[test]
    fn a_group_is_opened_up() {
        let wrong = rooms(&[(
            "transport/fetch.rs",
            "use crate::{\n    message::{Headers, Incoming},\n    app::App,\n};\n",
        )]);
        assert_one(&wrong, &["`transport` imports `app`"]);
    }

    #[test]
    fn super_counts_where_it_leads_to_the_root() {
        assert_one(
            &rooms(&[("codec/mod.rs", "use super::app::App;")]),
            &["`codec` imports `app`"],
        );
        assert_one(
            &rooms(&[("codec/json.rs", "use super::super::app::App;")]),
            &["`codec` imports `app`"],
        );
        assert_eq!(
            rooms(&[("codec/json.rs", "use super::app::App;")]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn comments_strings_and_tests_do_not_count() {
        let source = "/// See [`x`](crate::app::App).\nconst A: &str = \"crate::app::App\";\n#[cfg(test)]\nmod tests {\n    use crate::app::App;\n}\n";
        assert_eq!(rooms(&[("message/mod.rs", source)]), Vec::<String>::new());
    }

    #[test]
    fn rooms_of_one_line_may_not_import_each_other_both_ways() {
        let wrong = rooms(&[
            ("handler/call.rs", "use crate::layer::Layer;"),
            ("layer/mod.rs", "use crate::policy::Retry;"),
            ("policy/mod.rs", "use crate::publish::Publisher;"),
        ]);
        assert_one(
            &wrong,
            &["circle", "`handler` imports `layer`", "`policy` imports `handler`"],
        );
    }

    #[test]
    fn modules_of_one_room_may() {
        let sources = [
            ("handler/call.rs", "use crate::publish::Publisher;"),
            ("publish/out.rs", "use crate::handler::Call;"),
        ];
        assert_eq!(rooms(&sources), Vec::<String>::new());
    }

    #[test]
    fn a_transport_sees_the_contract_only() {
        assert_one(
            &rooms(&[("memory/mod.rs", "use crate::runtime::Lane;")]),
            &["a transport sees transport, message"],
        );
        let source = Source::new(
            "fetch.rs".into(),
            "use ruststream::transport::Fetch;\nuse ruststream::{message::Headers, app};\n",
        );
        let wrong = check_transport_crate("ruststream-sqlx", &[source]);
        assert_one(&wrong, &["ruststream-sqlx/src/fetch.rs:2", "`ruststream::app`"]);
    }

    #[test]
    fn a_tool_for_services_sees_the_app_and_never_the_runtime() {
        let tool = |text| Source::new("outbox/relay.rs".into(), text);
        let seen = check_transport_crate("ruststream-sqlx", &[tool("use ruststream::app::Background;")]);
        assert_eq!(seen, Vec::<String>::new());
        let wrong = check_transport_crate("ruststream-sqlx", &[tool("use ruststream::runtime::Shared;")]);
        assert_one(
            &wrong,
            &["ruststream-sqlx/src/outbox/relay.rs:1", "`ruststream::runtime`"],
        );
    }

    #[test]
    fn an_import_through_the_root_and_a_room_without_a_place_are_named() {
        assert_one(
            &rooms(&[("runtime/mod.rs", "use crate::RustStream;")]),
            &["past its room"],
        );
        assert_one(&rooms(&[("attic/mod.rs", "")]), &["`attic` has no place"]);
        assert_eq!(rooms(&[("runtime/mod.rs", "crate::trace!(1);")]), Vec::<String>::new());
    }
}
