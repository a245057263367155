//! The command line that `#[ruststream::app]` writes: `run`, `check`, `dead-letters`, `--help`, `--version`.

mod dead_letters;

use std::fmt::Display;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::RustStream;

/// Runs an app as the command line says. `#[ruststream::app]` calls it; a program with a command line of its own calls
/// [`RustStream::run`] instead.
pub fn main<F, Fut, E>(make: F) -> ExitCode
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Result<RustStream, E>>,
    E: Display,
{
    let arguments = command().get_matches();
    match dispatch(make, &arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            say(&format!("error: {message}"), true);
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    let name = std::env::args_os()
        .next()
        .and_then(|path| {
            std::path::Path::new(&path)
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
        })
        .unwrap_or_else(|| "app".to_owned());
    Command::new(name)
        .about("A RustStream service")
        .disable_version_flag(true)
        .subcommand(Command::new("run").about("Runs the service until SIGTERM or SIGINT (the default)"))
        .subcommand(Command::new("check").about("Says whether the service is put together well, without starting it"))
        .subcommand(dead_letters::command())
        .arg(
            Arg::new("version")
                .short('V')
                .long("version")
                .action(ArgAction::SetTrue)
                .help("Prints the service's name and version"),
        )
        .arg(
            Arg::new("log")
                .long("log")
                .global(true)
                .env("RUST_LOG")
                .value_name("LEVEL")
                .default_value("info")
                .help("What is logged: error, warn, info, debug, trace, or TARGET=LEVEL pairs with commas between"),
        )
        .arg(
            Arg::new("shutdown-grace")
                .long("shutdown-grace")
                .global(true)
                .env("RUSTSTREAM_SHUTDOWN_GRACE")
                .value_name("SECONDS")
                .value_parser(clap::value_parser!(f64))
                .help("How long work in hand may take at a shutdown"),
        )
        .arg(
            Arg::new("fail-fast")
                .long("fail-fast")
                .global(true)
                .env("RUSTSTREAM_FAIL_FAST")
                .action(ArgAction::SetTrue)
                .help("Ends with an error where a broker is absent at the start, instead of waiting for it"),
        )
        .arg(
            Arg::new("threads")
                .long("threads")
                .global(true)
                .env("RUSTSTREAM_THREADS")
                .value_name("NUMBER")
                .value_parser(clap::value_parser!(u16).range(1..))
                .help("How many threads run handlers; one for each CPU where nothing is set"),
        )
}

fn dispatch<F, Fut, E>(make: F, arguments: &ArgMatches) -> Result<(), String>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Result<RustStream, E>>,
    E: Display,
{
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all();
    if let Some(threads) = arguments.get_one::<u16>("threads") {
        builder.worker_threads(usize::from(*threads));
    }
    let runtime = builder
        .build()
        .map_err(|error| format!("cannot start the threads of the service: {error}"))?;
    let ended = runtime.block_on(async {
        let app = async {
            make()
                .await
                .map_err(|error| format!("the service could not be put together: {error:#}"))
        };
        if arguments.get_flag("version") {
            let app = app.await?;
            say(&format!("{} {}", app.info().name(), app.info().version()), false);
            return Ok(());
        }
        if let Some(("check", _)) = arguments.subcommand() {
            let app = app.await?;
            let lines = app.check().map_err(|error| error.to_string())?;
            for line in &lines {
                say(line, false);
            }
            for note in app.examine().notes() {
                say(&format!("note: {note}"), false);
            }
            say(
                "checked: names, sources, settings, dead-letter places, and what can be told of brokers without connecting",
                false,
            );
            let plural = if lines.len() == 1 { "" } else { "s" };
            say(
                &format!("{}: ok, {} subscription{plural}", app.info().name(), lines.len()),
                false,
            );
            return Ok(());
        }
        if let Some(("dead-letters", words)) = arguments.subcommand() {
            log(arguments.get_one::<String>("log").map_or("warn", |level| if level == "info" { "warn" } else { level }))?;
            return dead_letters::run(app.await?, words).await;
        }
        log(arguments.get_one::<String>("log").map_or("info", String::as_str))?;
        let mut app = app.await?;
        if let Some(seconds) = arguments.get_one::<f64>("shutdown-grace") {
            app.options.shutdown_grace = Duration::try_from_secs_f64(*seconds).map_err(|error| {
                format!("--shutdown-grace {seconds}: {error}; give a number of seconds, such as 30")
            })?;
        }
        app.options.fail_fast |= arguments.get_flag("fail-fast");
        app.run().await.map_err(|error| crate::runtime::chain(&error))
    });
    // A handler that blocks its thread must not keep the process from ending.
    runtime.shutdown_background();
    ended
}

/// Logs to standard error, in a form for people, in colour on a terminal.
fn log(filter: &str) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let filter = if filter.trim().is_empty() { "info" } else { filter };
    // A lone word that is no level would be taken for a target, and nothing else would be logged.
    let is_word = filter.chars().all(|letter| letter.is_ascii_alphabetic());
    if is_word && !LEVELS.contains(&filter.to_ascii_lowercase().as_str()) {
        return Err(format!(
            "--log {filter}: no level; one of {}, or TARGET=LEVEL pairs",
            LEVELS.join(", ")
        ));
    }
    let filter: Targets = filter
        .parse()
        .map_err(|error| format!("--log {filter}: {error}; try info, or my_service=debug,info"))?;
    let to_terminal = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // An error means that the program has set up logging of its own, which then holds.
    let _ = tracing_subscriber::registry().with(filter).with(to_terminal).try_init();
    Ok(())
}

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to the terminal is the command line's job"
)]
fn say(line: &str, error: bool) {
    if error {
        eprintln!("{line}");
    } else {
        println!("{line}");
    }
}
