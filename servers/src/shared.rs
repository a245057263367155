//! Servers that all tests of a checkout use at once.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{self, Lock};
use crate::{Error, Kind, Settings, install, instance};

/// The URL of a server of this kind: that of the environment, or that of the private instance that all tests of this checkout
/// share, which is started if it does not run.
///
/// # Errors
///
/// As [`Instance::start`](crate::Instance::start).
pub fn shared(kind: Kind) -> Result<String, Error> {
    if let Some(url) = given(kind) {
        return Ok(url);
    }
    let _one_at_a_time = Lock::take(kind.name())?;
    if let Some(running) = running(kind)? {
        return Ok(kind.recipe().url(running.port));
    }
    install::ensure(kind)?;
    let place = place_of(kind)?;
    if place.exists() {
        fs::remove_dir_all(&place).map_err(Error::during(place.display()))?;
    }
    fs::create_dir_all(&place).map_err(Error::during(place.display()))?;
    let port = process::free_port()?;
    let settings = Settings::default();
    instance::prepare(kind, &place, port, settings)?;
    let child = instance::launch(kind, &place, port, settings)?;
    kind.recipe().set_up(&place, port)?;
    let note = note_of(kind)?;
    fs::write(&note, format!("{} {port}", child.id())).map_err(Error::during(note.display()))?;
    let url = kind.recipe().url(port);
    eprintln!("started {} at {url} (`cargo xtask services stop` ends it)", kind.name());
    Ok(url)
}

/// The URL of the shared server of this kind if one runs or is given by the environment.
///
/// # Errors
///
/// Where the note about it cannot be read.
pub fn shared_running(kind: Kind) -> Result<Option<String>, Error> {
    if let Some(url) = given(kind) {
        return Ok(Some(url));
    }
    Ok(running(kind)?.map(|running| kind.recipe().url(running.port)))
}

/// Ends the shared server of this kind if this checkout has started one; true where one ran.
///
/// # Errors
///
/// Where the note about it cannot be read.
pub fn stop_shared(kind: Kind) -> Result<bool, Error> {
    let _one_at_a_time = Lock::take(kind.name())?;
    let running = running(kind)?;
    let place = place_of(kind)?;
    if let Some(running) = &running {
        let all = process::tree(running.pid);
        process::signal(running.pid, kind.recipe().stops_by());
        let ended = || !all.iter().any(|pid| process::runs(*pid));
        if !process::wait_until(Duration::from_secs(10), ended) {
            for pid in &all {
                process::signal(*pid, Signal::KILL);
            }
            process::wait_until(Duration::from_secs(10), ended);
        }
        kind.recipe().clean_up(&place, running.port);
    }
    if place.exists() {
        fs::remove_dir_all(&place).map_err(Error::during(place.display()))?;
    }
    let _ = fs::remove_file(note_of(kind)?);
    Ok(running.is_some())
}

fn given(kind: Kind) -> Option<String> {
    env::var(kind.variable()).ok().filter(|url| !url.is_empty())
}

struct Running {
    pid: u32,
    port: u16,
}

/// What the note says, if that process still runs and answers.
fn running(kind: Kind) -> Result<Option<Running>, Error> {
    let Ok(note) = fs::read_to_string(note_of(kind)?) else {
        return Ok(None);
    };
    let place = place_of(kind)?;
    let running = note.split_once(' ').and_then(|(pid, port)| {
        Some(Running {
            pid: pid.parse().ok()?,
            port: port.parse().ok()?,
        })
    });
    Ok(running.filter(|running| process::runs(running.pid) && kind.recipe().answers(&place, running.port)))
}

fn place_of(kind: Kind) -> Result<PathBuf, Error> {
    Ok(process::own_directory()?.join(kind.name()))
}

fn note_of(kind: Kind) -> Result<PathBuf, Error> {
    Ok(process::own_directory()?.join(format!("{}.running", kind.name())))
}
