//! The quickstart as a person sees it who runs it, kills it, and runs it again: what it prints is what is promised.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

/// Nothing here takes so long: what does is stuck.
const PATIENCE: Duration = Duration::from_secs(40);

/// What the report says in the end where nothing was lost; how many were retried depends on kills.
const NONE_LOST: (&str, &str) = (
    "of 400 orders 399 were handled (",
    " after a retry), 1 is a dead letter, 0 were lost, 0 receipts are missing",
);

fn quickstart() -> Command {
    Command::new(env!("CARGO_BIN_EXE_quickstart"))
}

/// A copy of the program at work.
struct Copy {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    said: Vec<String>,
}

impl Copy {
    fn start(folder: &Path) -> Self {
        let mut command = tokio::process::Command::from(quickstart());
        let mut child = command
            .env("QUICKSTART_DIR", folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            lines,
            said: Vec::new(),
        }
    }

    /// Reads what it says until a line has this in it.
    async fn until_it_says(&mut self, words: &str) {
        loop {
            let line = timeout(PATIENCE, self.lines.next_line())
                .await
                .expect("it fell silent")
                .unwrap();
            let line = line.unwrap_or_else(|| panic!("it ended without saying {words:?}: {:#?}", self.said));
            let there = line.contains(words);
            self.said.push(line);
            if there {
                return;
            }
        }
    }

    async fn ends(mut self) -> (ExitStatus, Vec<String>) {
        while let Some(line) = timeout(PATIENCE, self.lines.next_line())
            .await
            .expect("it fell silent")
            .unwrap()
        {
            self.said.push(line);
        }
        let exit = timeout(PATIENCE, self.child.wait())
            .await
            .expect("it did not end")
            .unwrap();
        (exit, self.said)
    }

    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Waits until so many orders are handled, by the ledger.
async fn handled(folder: &Path, number: usize) {
    let watching = async {
        while ledger(folder, "handled").len() < number {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, watching).await.expect("the orders were not handled");
}

/// How often the ledger says this of each order.
fn ledger(folder: &Path, what: &str) -> BTreeMap<u64, u32> {
    let text = std::fs::read_to_string(folder.join("ledger.txt")).unwrap_or_default();
    let mut times = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == what {
            *times.entry(words[1].parse().unwrap()).or_default() += 1;
        }
    }
    times
}

/// The verdict's line says that nothing was lost.
fn assert_none_lost(said: &[String]) {
    let (before, after) = NONE_LOST;
    let verdict = said.iter().find(|line| line.starts_with("of 400 orders"));
    let verdict = verdict.unwrap_or_else(|| panic!("there is no verdict: {said:#?}"));
    assert!(verdict.starts_with(before) && verdict.ends_with(after), "{verdict}");
}

fn doubled(said: &[String]) -> u32 {
    let line = said.iter().find_map(|line| line.strip_prefix("handlers ran "));
    line.unwrap().split(' ').next().unwrap().parse().unwrap()
}

/// Every order but the one that no shop can charge is in the ledger, with its receipt.
fn assert_all_in(folder: &Path) {
    let expected: Vec<u64> = (1..=400).filter(|id| *id != 13).collect();
    for what in ["handled", "mailed"] {
        assert_eq!(ledger(folder, what).into_keys().collect::<Vec<_>>(), expected, "{what}");
    }
}

fn folder() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("data");
    (directory, folder)
}

#[tokio::test]
async fn it_handles_every_order_and_tells_what_became_of_the_others() {
    let (_directory, folder) = folder();

    let (exit, said) = Copy::start(&folder).ends().await;

    assert!(exit.success());
    assert!(
        said[0].starts_with("400 orders and one that is none are in the queue."),
        "{said:#?}"
    );
    assert!(
        said.iter()
            .any(|line| line.starts_with("handled ") && line.contains("in hand"))
    );
    let text = said.join("\n");
    assert!(text.contains("undecodable after 1 attempt(s)"), "{text}");
    assert!(text.contains("  payload: this is no order"), "{text}");
    assert!(text.contains("attempts-exhausted after 4 attempt(s)"), "{text}");
    assert!(
        text.contains("  why:     order 13 has a negative price of -1 cents"),
        "{text}"
    );
    assert_none_lost(&said);
    assert!(text.contains("(40 after a retry)"), "{text}");
    assert_eq!(doubled(&said), 0);
    assert_all_in(&folder);

    // A second run is a new one.
    let mut again = Copy::start(&folder);
    again
        .until_it_says("400 orders and one that is none are in the queue.")
        .await;
    again.kill().await;
}

#[tokio::test]
async fn killed_in_the_middle_and_started_again_it_loses_nothing() {
    let (_directory, folder) = folder();
    let first = Copy::start(&folder);
    handled(&folder, 100).await;
    first.kill().await;
    let before = ledger(&folder, "handled").len();
    assert!(before < 399, "it was to be killed in the middle");

    let (exit, said) = Copy::start(&folder).ends().await;

    assert!(exit.success());
    assert!(said[0].starts_with("Going on where the last run ended:"), "{said:#?}");
    assert_none_lost(&said);
    // What eight workers had in hand, and what they had finished and not settled, with the receipts of those.
    assert!(doubled(&said) <= 40, "{}", doubled(&said));
    assert_all_in(&folder);
}

#[tokio::test]
async fn two_copies_share_the_work_and_neither_loses_nor_doubles_any() {
    let (_directory, folder) = folder();
    let mut first = Copy::start(&folder);
    first.until_it_says("in the queue").await;
    let second = Copy::start(&folder);

    let ((first_exit, first), (second_exit, second)) = tokio::join!(first.ends(), second.ends());

    assert!(first_exit.success() && second_exit.success());
    for said in [&first, &second] {
        assert_none_lost(said);
        assert_eq!(doubled(said), 0);
        let acked = said
            .iter()
            .find_map(|line| line.strip_prefix("this process: `orders` acked "));
        let acked = acked.unwrap().split(',').next().unwrap();
        assert!(acked.parse::<u32>().unwrap() > 50, "it took no part: {said:#?}");
    }
    assert_all_in(&folder);
    let both = ledger(&folder, "handled")
        .into_values()
        .chain(ledger(&folder, "mailed").into_values());
    assert!(both.max().unwrap() == 1);
}

/// Of two copies that started together one is killed: the other does the rest.
#[tokio::test]
async fn of_two_copies_one_may_be_killed() {
    let (_directory, folder) = folder();
    let (first, second) = (Copy::start(&folder), Copy::start(&folder));
    handled(&folder, 150).await;
    first.kill().await;

    let (exit, said) = second.ends().await;

    assert!(exit.success());
    assert_none_lost(&said);
    assert_all_in(&folder);
}

/// What the program answers, in a folder of its own.
fn answer(arguments: &[&str]) -> (TempDir, Output, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let output = quickstart()
        .args(arguments)
        .env("QUICKSTART_DIR", directory.path().join("data"))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    (directory, output, said, complained)
}

#[test]
fn check_tells_the_wiring_without_starting() {
    let (directory, output, said, complained) = answer(&["check"]);
    assert!(output.status.success(), "{complained}");
    assert!(said.contains("orders -> confirm -> receipts (workers 8)"), "{said}");
    assert!(said.contains("receipts -> mail (workers 1)"), "{said}");
    assert!(said.contains("checked: names, sources"), "{said}");
    assert!(!said.contains("note: "), "{said}");
    assert!(said.contains("quickstart: ok, 2 subscriptions"), "{said}");
    assert!(!directory.path().join("data/orders.db").exists(), "nothing was opened");
}

#[test]
fn help_and_version_are_answered() {
    let (_directory, output, said, _) = answer(&["--help"]);
    assert!(output.status.success());
    for word in [
        "Usage: quickstart",
        "run",
        "check",
        "--log",
        "--shutdown-grace",
        "--fail-fast",
        "--version",
    ] {
        assert!(said.contains(word), "{word} is missing in {said}");
    }
    let (_directory, output, said, _) = answer(&["--version"]);
    assert!(output.status.success());
    assert_eq!(said.trim(), format!("quickstart {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn what_it_does_not_know_it_refuses_with_a_hint() {
    for (arguments, words) in [
        (&["--shutdwon-grace", "5"][..], &["--shutdwon-grace", "--help"][..]),
        (&["chekc"][..], &["chekc", "--help"][..]),
        (&["--shutdown-grace", "soon"][..], &["soon"][..]),
        (&["--shutdown-grace=-1"][..], &["--shutdown-grace", "-1"][..]),
        (&["--threads", "0"][..], &["--threads", "0"][..]),
        (&["--log", "quickstart=loud"][..], &["--log", "loud"][..]),
    ] {
        let (_directory, output, _, complained) = answer(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        for word in words {
            assert!(
                complained.contains(word),
                "{arguments:?}: {word} is missing in {complained}"
            );
        }
    }
}

/// A folder whose database is no file: one error that names it, and an exit code that a shell sees.
#[test]
fn a_database_that_cannot_be_is_one_clear_error() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join("orders.db")).unwrap();
    let output = quickstart().env("QUICKSTART_DIR", directory.path()).output().unwrap();

    assert_eq!(output.status.code(), Some(1));
    let complained = String::from_utf8(output.stderr).unwrap();
    let errors: Vec<&str> = complained.lines().filter(|line| line.starts_with("error:")).collect();
    assert_eq!(errors.len(), 1, "{complained}");
    assert!(
        errors[0].contains("orders.db is a directory: name a file in it"),
        "{complained}"
    );

    // A folder that cannot be made, in the place of a file.
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = quickstart().env("QUICKSTART_DIR", file.join("data")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complained = String::from_utf8(output.stderr).unwrap();
    assert_eq!(complained.lines().count(), 1, "{complained}");
}

#[tokio::test]
async fn its_dead_letter_is_listed_shown_put_back_and_thrown_away() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("data");
    let (exit, said) = Copy::start(&folder).ends().await;
    assert!(exit.success(), "{said:#?}");
    let letters = |words: &[&str]| {
        let mut command = quickstart();
        let output = command
            .arg("dead-letters")
            .args(words)
            .env("QUICKSTART_DIR", &folder)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };

    let (ok, listed, complained) = letters(&["list"]);
    assert!(ok, "{complained}");
    assert!(listed.contains("attempts-exhausted after 4 attempts"), "{listed}");
    assert!(listed.contains("has a negative price"), "{listed}");
    assert!(listed.contains("undecodable after 1 attempt"), "{listed}");
    assert!(
        listed.contains("orders: 2 dead letters\nreceipts: 0 dead letters"),
        "{listed}"
    );
    let id = listed.split([' ', ':']).nth(1).unwrap();

    let (ok, shown, complained) = letters(&["show", "orders", id]);
    assert!(ok, "{complained}");
    for line in [
        "source: orders",
        "given up by: orders",
        "attempts: 4",
        "payload: {\"id\":",
    ] {
        assert!(shown.contains(line), "{line} is missing in {shown}");
    }
    assert!(!letters(&["show", "orders", "999999"]).0);
    let (ok, _, complained) = letters(&["list", "ordres"]);
    assert!(
        !ok && complained.contains("there are: orders, receipts"),
        "{complained}"
    );

    for none in [
        &["replay", "--reason", "rejected"][..],
        &["replay", "--older-than", "1h"],
        &["purge", "orders", "--error", "no such words"],
        &["purge", "receipts", "--all"],
    ] {
        let (ok, said, complained) = letters(none);
        assert!(ok, "{complained}");
        assert!(said.contains("ed 0 of "), "{none:?}: {said}");
    }
    let (ok, said, complained) = letters(&["replay", "orders", "--id", id, "--rate", "100", "--keep-attempts"]);
    assert!(ok && said.contains("orders: replayed 1 of 2"), "{said}{complained}");
    assert!(letters(&["list"]).1.contains("orders: 1 dead letter\n"));

    // With its attempts kept it has one more, and is given up again. The program itself purges the other when it begins.
    let (exit, said) = Copy::start(&folder).ends().await;
    assert!(exit.success(), "{said:#?}");
    let (_, listed, _) = letters(&["list", "orders"]);
    assert!(listed.contains("after 5 attempts"), "{listed}");
    let (ok, said, complained) = letters(&["purge", "--all"]);
    assert!(ok && said.contains("orders: purged 1 of 1"), "{said}{complained}");
    assert!(letters(&["list"]).1.contains("orders: 0 dead letters"));
}
