//! The command `dead-letters`: what it is told, and what it says.

use std::time::{Duration, SystemTime};

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::say;
use crate::app::RustStream;
use crate::app::dead_letters::{Action, Filter, Job, Shown};
use crate::transport::{DeadMessage, ReplayAttempts};

/// How much of an error stands in a line of the list.
const LINE: usize = 100;

pub(super) fn command() -> Command {
    let list = Command::new("list")
        .about("Lists the dead letters of one source, or of all that the service reads, oldest first")
        .arg(
            Arg::new("limit")
                .long("limit")
                .value_name("NUMBER")
                .value_parser(clap::value_parser!(u64).range(1..))
                .default_value("50")
                .help("How many of each source"),
        );
    let show = Command::new("show").about("Shows one dead letter whole: its history, its headers and its payload");
    let replay = Command::new("replay")
        .about("Puts dead letters back to be delivered")
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("PER-SECOND")
                .value_parser(rate)
                .help("How many a second at most; as fast as the broker takes them where nothing is set"),
        )
        .arg(
            Arg::new("keep-attempts")
                .long("keep-attempts")
                .action(ArgAction::SetTrue)
                .help("Their attempts count on, so that each has one more; else they count from the start"),
        );
    let purge = Command::new("purge").about("Throws dead letters away for good");
    let show = show.arg(source().required(true)).arg(
        Arg::new("id")
            .value_name("ID")
            .required(true)
            .help("The id that `list` shows"),
    );
    Command::new("dead-letters")
        .about("Lists, shows, replays and purges what was given up")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(filtered(list.arg(source())))
        .subcommand(show)
        .subcommand(chosen(filtered(replay.arg(source()))))
        .subcommand(chosen(filtered(purge.arg(source()))))
}

fn source() -> Arg {
    Arg::new("source")
        .value_name("SOURCE")
        .help("What a subscription reads, as `check` shows it; all of them where none is given")
}

fn filtered(command: Command) -> Command {
    let id = Arg::new("id")
        .long("id")
        .value_name("ID")
        .action(ArgAction::Append)
        .help("Only the one of this id; may be given more than once");
    let reason = Arg::new("reason").long("reason").value_name("WORD").help(
        "Only those given up for this reason: attempts-exhausted, undecodable, rejected, or a word of the broker's own",
    );
    let error = Arg::new("error")
        .long("error")
        .value_name("TEXT")
        .help("Only those whose last error contains this text");
    let older = Arg::new("older-than")
        .long("older-than")
        .value_name("AGE")
        .value_parser(age)
        .help("Only those given up at least so long ago: 90s, 15m, 2h, 7d");
    command.args([id, reason, error, older])
}

fn chosen(command: Command) -> Command {
    command
        .arg(
            Arg::new("all")
                .long("all")
                .action(ArgAction::SetTrue)
                .help("All that are there now"),
        )
        .group(
            clap::ArgGroup::new("which")
                .args(["all", "id", "reason", "error", "older-than"])
                .required(true)
                .multiple(true),
        )
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("give a number above 0, such as 50".to_owned()),
    }
}

fn age(text: &str) -> Result<Duration, String> {
    let wrong = || "give a number with s, m, h or d, such as 15m".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

pub(super) async fn run(app: RustStream, arguments: &ArgMatches) -> Result<(), String> {
    let (job, verb) = job(arguments)?;
    let (whole, shows) = (matches!(job.action, Action::Show), verb.is_empty());
    let now = SystemTime::now();
    let mut tell = |what: Shown<'_>| match what {
        Shown::Letter { source, letter } if whole => show(source, letter, now),
        Shown::Letter { source, letter } => say(&line(source, letter, now), false),
        Shown::Unreadable { source, reason } => say(&format!("{source}: {reason}"), true),
        Shown::Done { .. } if whole => {}
        Shown::Done {
            source, count, seen, ..
        } if !shows => {
            say(&format!("{source}: {verb} {count} of {seen}"), false);
        }
        Shown::Done {
            source, count, more, ..
        } => {
            let rest = if more {
                ", and there are more: raise --limit"
            } else {
                ""
            };
            say(
                &format!(
                    "{source}: {count} dead letter{}{rest}",
                    if count == 1 { "" } else { "s" }
                ),
                false,
            );
        }
    };
    let count = app
        .dead_letters(job, &mut tell)
        .await
        .map_err(|error| crate::runtime::chain(&error))?;
    if whole && count == 0 {
        return Err("there is no dead letter of this id; `dead-letters list` shows those that are there".to_owned());
    }
    Ok(())
}

/// What to do, and the word for what was done; empty where nothing changes.
fn job(arguments: &ArgMatches) -> Result<(Job, &'static str), String> {
    let Some((name, arguments)) = arguments.subcommand() else {
        return Err("dead-letters: say list, show, replay or purge".to_owned());
    };
    let text = |name: &str| arguments.get_one::<String>(name).cloned();
    let source = text("source");
    if name == "show" {
        let filter = Filter {
            ids: text("id").into_iter().collect(),
            ..Filter::default()
        };
        let action = Action::Show;
        return Ok((Job { source, filter, action }, ""));
    }
    let older = arguments.get_one::<Duration>("older-than");
    let filter = Filter {
        ids: arguments.get_many("id").into_iter().flatten().cloned().collect(),
        reason: text("reason"),
        error: text("error"),
        before: older.map(|age| SystemTime::now().checked_sub(*age).unwrap_or(SystemTime::UNIX_EPOCH)),
    };
    let (action, verb) = match name {
        "list" => {
            let limit = arguments.get_one::<u64>("limit").copied().unwrap_or(u64::MAX);
            (Action::List { limit }, "")
        }
        "replay" => {
            let attempts = if arguments.get_flag("keep-attempts") {
                ReplayAttempts::Kept
            } else {
                ReplayAttempts::Reset
            };
            let rate = arguments.get_one::<f64>("rate").copied();
            (Action::Replay { attempts, rate }, "replayed")
        }
        _ => (Action::Purge, "purged"),
    };
    Ok((Job { source, filter, action }, verb))
}

fn line(source: &str, letter: &DeadMessage, now: SystemTime) -> String {
    let DeadMessage {
        id, reason, attempts, ..
    } = letter;
    let error = letter.error.lines().next().unwrap_or_default();
    let short: String = error.chars().take(LINE).collect();
    let cut = if short.len() < error.len() { "..." } else { "" };
    let plural = if *attempts == 1 { "" } else { "s" };
    format!(
        "{source} {id}: {reason} after {attempts} attempt{plural}, {}: {}{cut}",
        ago(letter.dead_at, now),
        plain(&short)
    )
}

fn show(source: &str, letter: &DeadMessage, now: SystemTime) {
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => plain(text),
        Err(_) => format!("{} bytes that are no text: {}", bytes.len(), bytes.escape_ascii()),
    };
    let put = |name: &str, value: String| say(&format!("{name}: {value}"), false);
    put("id", letter.id.clone());
    put("source", source.to_owned());
    put("given up by", plain(&letter.source));
    put("given up", ago(letter.dead_at, now));
    put("reason", plain(&letter.reason));
    put("attempts", letter.attempts.to_string());
    put("error", plain(&letter.error));
    if let Some(key) = &letter.key {
        put("key", text(key));
    }
    for (name, value) in letter.headers.iter() {
        put(&format!("header {}", plain(name)), text(value));
    }
    put("payload", text(&letter.payload));
}

/// What a terminal can show: a message may hold what would command it.
fn plain(text: &str) -> String {
    let shown = |letter: char| letter == '\n' || letter == '\t' || !letter.is_control();
    text.chars()
        .map(|letter| if shown(letter) { letter } else { '\u{fffd}' })
        .collect()
}

fn ago(then: SystemTime, now: SystemTime) -> String {
    if then == SystemTime::UNIX_EPOCH {
        return "at a time that was not kept".to_owned();
    }
    let seconds = now.duration_since(then).unwrap_or_default().as_secs();
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_numbers_with_a_unit() {
        assert_eq!(age("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(age("2h"), Ok(Duration::from_hours(2)));
        for wrong in [
            "",
            "h",
            "5",
            "1.5h",
            "-1d",
            "5µ",
            "99999999999999999999d",
            "999999999999999999d",
        ] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_message_commands_no_terminal() {
        assert_eq!(plain("a\x1b[2Jb\r\n"), "a\u{fffd}[2Jb\u{fffd}\n");
    }

    #[test]
    fn what_is_changed_must_be_named() {
        let parse = |words: &[&str]| command().try_get_matches_from([&["dead-letters"], words].concat());
        for wrong in [
            &["replay"][..],
            &["purge", "orders"],
            &["show", "orders"],
            &[],
            &["replay", "--all", "--rate", "0"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        for right in [
            &["list"][..],
            &["purge", "--all"],
            &["replay", "orders", "--id", "1", "--id", "2"],
        ] {
            assert!(parse(right).is_ok(), "{right:?}");
        }
    }
}
