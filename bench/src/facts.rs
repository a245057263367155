//! The facts of the machine, the compiler and the checkout, asked for and not typed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use toml::Table;

use crate::results::{Environment, Profile};

/// The flags that this binary was built with.
const RUSTFLAGS: &str = env!("BENCH_RUSTFLAGS");

/// What stands where the machine does not say.
const UNKNOWN: &str = "unknown";

/// All that is known before a run; the rest is the run's to fill in. `clients` are the names of the client libraries.
pub fn environment(clients: &[&str]) -> Environment {
    let root = workspace_root();
    Environment {
        date: today(),
        commit: commit(&root),
        cpu: field_of("/proc/cpuinfo", "model name").unwrap_or_else(|| UNKNOWN.to_owned()),
        cores: cores(),
        memory_bytes: memory_bytes(),
        os: os_name(&read("/etc/os-release")),
        kernel: format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease").trim()),
        rustc: env!("BENCH_RUSTC").to_owned(),
        profile: profile(&table(&root.join("Cargo.toml")), "bench"),
        rustflags: RUSTFLAGS.to_owned(),
        load_average: load_average(),
        valgrind: said("valgrind", &["--version"], &root),
        clients: versions(&table(&root.join("Cargo.lock")), clients),
        ..Environment::default()
    }
}

/// The features that this binary was built with.
pub fn features() -> Vec<String> {
    env!("BENCH_FEATURES").split(',').map(str::to_owned).collect()
}

/// The folder above this crate. Asked of cargo at run time, so that a moved checkout needs no rebuild.
pub fn workspace_root() -> PathBuf {
    let bench = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let root = bench.as_deref().and_then(Path::parent);
    root.unwrap_or_else(|| Path::new(".")).to_owned()
}

/// The load averages of 1, 5 and 15 minutes; zeros where the machine does not say.
pub fn load_average() -> [f64; 3] {
    let text = read("/proc/loadavg");
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    std::array::from_fn(|_| numbers.next().unwrap_or_default())
}

/// The kind of file system that a folder is on.
pub fn file_system(folder: &Path) -> String {
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    mounted(&read("/proc/self/mounts"), &folder).unwrap_or_else(|| UNKNOWN.to_owned())
}

/// Today in UTC.
pub fn today() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    date(seconds / 86_400)
}

/// The commit of the checkout, with `+changes` where it has others than the results themselves.
fn commit(root: &Path) -> String {
    let Some(commit) = said("git", &["rev-parse", "--short=12", "HEAD"], root) else {
        return UNKNOWN.to_owned();
    };
    let elsewhere = format!(":!{}", crate::results::PATH);
    match said("git", &["status", "--porcelain", "--", ".", &elsewhere], root) {
        Some(changes) if !changes.is_empty() => format!("{commit}+changes"),
        _ => commit,
    }
}

/// Logical processors of the machine, whichever of them this process may use.
fn cores() -> usize {
    let listed = read("/proc/cpuinfo")
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    match listed {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        listed => listed,
    }
}

fn memory_bytes() -> u64 {
    let kilobytes = field_of("/proc/meminfo", "MemTotal");
    let kilobytes = kilobytes.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1024
}

/// The value of the first line `name : value`.
fn field_of(path: &str, name: &str) -> Option<String> {
    let text = read(path);
    let (_, value) = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

fn os_name(release: &str) -> String {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| UNKNOWN.to_owned(), |name| name.trim_matches('"').to_owned())
}

/// The profile, with what it inherits.
fn profile(manifest: &Table, name: &str) -> Profile {
    let text = |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let setting = |key: &str| {
        let mut at = name;
        // A profile inherits from one before it, so this ends; the bound is for a manifest that is wrong.
        for _ in 0..8 {
            let profile = manifest.get("profile")?.get(at)?;
            if let Some(value) = profile.get(key) {
                return Some(text(value));
            }
            at = profile.get("inherits")?.as_str()?;
        }
        None
    };
    // What cargo takes where nothing is set.
    Profile {
        name: name.to_owned(),
        opt_level: setting("opt-level").unwrap_or_else(|| "3".to_owned()),
        lto: setting("lto").unwrap_or_else(|| "false".to_owned()),
        codegen_units: setting("codegen-units")
            .and_then(|units| units.parse().ok())
            .unwrap_or(16),
    }
}

/// The versions of some packages in a `Cargo.lock`.
fn versions(lock: &Table, names: &[&str]) -> BTreeMap<String, String> {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    packages
        .into_iter()
        .flatten()
        .filter_map(|package| Some((package.get("name")?.as_str()?, package.get("version")?.as_str()?)))
        .filter(|(name, _)| names.contains(name))
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect()
}

/// The type of the file system whose mount point is the longest beginning of the folder's path.
fn mounted(mounts: &str, folder: &Path) -> Option<String> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            Some((Path::new(words.next()?), words.next()?))
        })
        .filter(|(point, _)| folder.starts_with(point))
        // Of two on one point, the later one hides the earlier.
        .max_by_key(|(point, _)| point.components().count())
        .map(|(_, kind)| kind.to_owned())
}

/// The day of so many days since 1970: Howard Hinnant's `civil_from_days`,
/// <https://howardhinnant.github.io/date_algorithms.html>.
fn date(days: u64) -> String {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn table(path: &Path) -> Table {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.parse().unwrap_or_default()
}

/// What a program printed, where it is there and went well.
fn said(program: &str, arguments: &[&str], folder: &Path) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (20_788, "2026-12-01"),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn a_profile_has_what_it_inherits() {
        let manifest =
            "[profile.release]\nopt-level = 2\nlto = \"thin\"\n[profile.bench]\ninherits = \"release\"\nlto = \"fat\"";
        let profile = profile(&manifest.parse().unwrap(), "bench");
        assert_eq!(
            (profile.opt_level.as_str(), profile.lto.as_str(), profile.codegen_units),
            ("2", "fat", 16)
        );
    }

    #[test]
    fn the_workspace_says_its_profile_and_the_versions_of_its_packages() {
        let environment = environment(&["serde"]);
        assert_eq!(environment.profile.lto, "fat");
        assert!(environment.clients["serde"].starts_with("1."), "{environment:?}");
        assert!(environment.rustc.starts_with("rustc 1."), "{environment:?}");
        assert!(environment.cores > 0);
    }

    #[test]
    fn a_folder_is_on_the_mount_that_is_nearest_above_it() {
        let mounts = "overlay / overlay rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/sda /tmp/disk ext4 rw 0 0\n";
        let on = |folder: &str| mounted(mounts, Path::new(folder)).unwrap();
        assert_eq!(on("/home"), "overlay");
        assert_eq!(on("/tmp/x"), "tmpfs");
        assert_eq!(on("/tmp/disk/x"), "ext4");
        assert_eq!(on("/tmp/diskette"), "tmpfs");
    }
}
