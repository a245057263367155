//! `cargo xtask bench --build`: what a hundred handlers, all different, add to the building and to the size of a service.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::steps::{Cargo, Failed, Steps};

/// The handlers of the larger service; the smaller has one.
const HANDLERS: usize = 100;
/// The most CPU-seconds that they may add to a build without optimization.
const MOST_SECONDS: f64 = 25.0;
/// The most stripped bytes that a handler may add to an optimized program.
const MOST_BYTES: u64 = 60 * 1024;

/// Builds both services both ways, and says what the handlers add; fails where that is too much.
pub(crate) fn run(steps: &mut Steps) -> Result<(), Failed> {
    let does = format!("builds services of 1 and of {HANDLERS} handlers, with and without optimization");
    steps.check("bench --build", &does, |root| {
        let place = fs::canonicalize(root).map_err(|error| format!("{}: {error}", root.display()))?;
        let project = Project::new(&place)?;
        let few = project.measure(1)?;
        let many = project.measure(HANDLERS)?;
        let seconds = many.seconds - few.seconds;
        let bytes = many.bytes.saturating_sub(few.bytes) / (HANDLERS as u64 - 1);
        let found = format!(
            "{HANDLERS} handlers add {seconds:.1} CPU-seconds to a debug build (at most {MOST_SECONDS}), and each {bytes} bytes to a \
             stripped release (at most {MOST_BYTES})"
        );
        if seconds > MOST_SECONDS || bytes > MOST_BYTES {
            return Err(found);
        }
        Ok(found)
    })
}

/// A service outside the workspace, that is written anew for each number of handlers.
struct Project {
    folder: PathBuf,
}

struct Measured {
    /// CPU-seconds of compiling and linking the service alone, its dependencies ready.
    seconds: f64,
    /// The size of the optimized program, stripped.
    bytes: u64,
}

impl Project {
    fn new(root: &Path) -> Result<Self, String> {
        let folder = root.join("target/handlers");
        let manifest = format!(
            "[package]\nname = \"handlers\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
             ruststream = {{ path = {:?} }}\nserde = \"1\"\n\n[profile.dev]\nincremental = false\n\n[profile.release]\nstrip = true\n",
            root.join("crates/ruststream").display().to_string()
        );
        fs::create_dir_all(folder.join("src")).map_err(|error| format!("{}: {error}", folder.display()))?;
        let project = Self { folder };
        project.write("Cargo.toml", &manifest)?;
        // The versions that the workspace is tested with.
        fs::copy(root.join("Cargo.lock"), project.folder.join("Cargo.lock"))
            .map_err(|error| format!("Cargo.lock: {error}"))?;
        Ok(project)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        fs::write(self.folder.join(file), text).map_err(|error| format!("{file}: {error}"))
    }

    fn measure(&self, handlers: usize) -> Result<Measured, String> {
        self.write("src/main.rs", &service(handlers, "dependencies"))?;
        self.build("build --quiet")?;
        self.write("src/main.rs", &service(handlers, "service"))?;
        let before = children_seconds()?;
        self.build("build --quiet")?;
        let seconds = children_seconds()? - before;
        self.build("build --quiet --release")?;
        let program = self.folder.join("target/release/handlers");
        let size = fs::metadata(&program).map_err(|error| format!("{}: {error}", program.display()))?;
        Ok(Measured {
            seconds,
            bytes: size.len(),
        })
    }

    fn build(&self, line: &str) -> Result<(), String> {
        let cargo = Cargo::new(line);
        let status = cargo
            .command(&self.folder)
            .env_remove("CARGO_TARGET_DIR")
            .status()
            .map_err(|error| format!("{cargo}: {error}"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("{cargo}: {status}"))
        }
    }
}

/// The source of a service with so many handlers: each has a message of its own; of four, one replies and one publishes.
fn service(handlers: usize, about: &str) -> String {
    let mut source = format!("//! {about}\nuse ruststream::prelude::*;\n");
    let mut included = String::new();
    for number in 0..handlers {
        let handler = match number % 4 {
            0 => format!(
                "#[subscriber(\"orders.{number}\")]\n\
                 async fn handler{number}(message: Message{number}) {{ println!(\"{{}}\", message.field{number}); }}\n"
            ),
            1 => format!(
                "#[subscriber(\"orders.{number}\")]\n\
                 async fn handler{number}(message: Message{number}, context: Context<'_>) -> Result<(), String> {{\n\
                 if message.cents < 0 {{ return Err(format!(\"{{}} at attempt {{}}\", message.id, context.attempt())); }}\nOk(()) }}\n"
            ),
            2 => format!(
                "#[subscriber(\"orders.{number}\", reply = \"replies.{number}\")]\n\
                 async fn handler{number}(message: Message{number}) -> Message{number} {{ message }}\n"
            ),
            _ => format!(
                "#[subscriber(\"orders.{number}\")]\n\
                 async fn handler{number}(message: Message{number}, out: Out<Message{number}>)\n\
                 -> Result<(), ruststream::transport::PublishError> {{\n\
                 out.publish(\"copies.{number}\", &message).await }}\n"
            ),
        };
        let _ = write!(
            source,
            "\n#[derive(Serialize, Deserialize)]\nstruct Message{number} {{ id: u64, field{number}: String, cents: i64 }}\n\n{handler}"
        );
        let _ = writeln!(included, "broker.include(handler{number});");
    }
    let _ = write!(
        source,
        "\n#[ruststream::app]\nfn app() -> RustStream {{\n\
         RustStream::new(AppInfo::new(\"handlers\", \"0.0.0\")).with_broker(MemoryBroker::new(), |broker| {{\n{included}}}).build()\n}}\n"
    );
    source
}

/// CPU-seconds of all child processes that have ended: `cutime` and `cstime` of proc(5).
fn children_seconds() -> Result<f64, String> {
    /// `sysconf(_SC_CLK_TCK)` of Linux on every architecture that Rust builds for.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").map_err(|error| format!("/proc/self/stat: {error}"))?;
    seconds_of(&stat, TICKS).ok_or_else(|| format!("/proc/self/stat is not as proc(5) says: {stat}"))
}

fn seconds_of(stat: &str, ticks: f64) -> Option<f64> {
    // Behind the name, which may hold spaces and ends with the last parenthesis, stands the third field.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(13);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_children_is_read() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 9 8 0 0 11 12 350 50 20 0 1 0 99 1 1";
        assert_eq!(seconds_of(stat, 100.0), Some(4.0));
        assert_eq!(seconds_of("nothing", 100.0), None);
    }

    #[test]
    fn each_handler_is_included_once() {
        let source = service(HANDLERS, "x");
        assert_eq!(source.matches("#[subscriber(").count(), HANDLERS);
        assert_eq!(source.matches("broker.include(").count(), HANDLERS);
    }
}
