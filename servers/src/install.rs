//! Installing what is missing, by Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::Lock;
use crate::{Error, Kind};

/// A file that keeps Debian's packages from starting their own servers while they are installed.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Makes sure that the programs of `kind` are on this machine.
pub(crate) fn ensure(kind: Kind) -> Result<(), Error> {
    let (program, packages) = kind.needs();
    self::program(program, packages).map_err(|error| {
        Error::new(format!(
            "{}: {error}; or set {} to the URL of a server of yours",
            kind.name(),
            kind.variable()
        ))
    })
}

/// The headless browser that a test looks at the site with: the program that the variable `CHROMIUM` names, or else that of Debian's package,
/// installed where it is missing.
///
/// # Errors
///
/// Where there is none and none can be installed.
pub fn chromium() -> Result<PathBuf, Error> {
    const PROGRAM: &str = "/usr/bin/chromium";
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return Ok(named.into());
    }
    program(PROGRAM, &["chromium"])
        .map_err(|error| Error::new(format!("{error}; or set CHROMIUM to the path of a Chromium or Chrome")))?;
    Ok(PROGRAM.into())
}

/// Makes sure that the file `program` is on this machine, which Debian's `packages` bring; installs them where it is not.
///
/// # Errors
///
/// Where it is missing and cannot be installed; the error names the packages.
pub fn program(program: &str, packages: &[&str]) -> Result<(), Error> {
    if Path::new(program).exists() {
        return Ok(());
    }
    let _one_at_a_time = Lock::take("install")?;
    if Path::new(program).exists() {
        return Ok(());
    }
    let wanted = packages.join(" ");
    let advice = format!("{program} is not there: install the Debian package(s) {wanted}");
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/apt-get").exists() {
        return Err(Error::new(advice));
    }
    eprintln!("installing {wanted} (apt-get install)");
    let policy = !Path::new(POLICY).exists();
    if policy {
        fs::write(POLICY, "#!/bin/sh\nexit 101\n").map_err(Error::during(POLICY))?;
        let mut mode = fs::metadata(POLICY).map_err(Error::during(POLICY))?.permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        fs::set_permissions(POLICY, mode).map_err(Error::during(POLICY))?;
    }
    let installed = apt(&["update", "-qq"]).and_then(|()| {
        let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
        arguments.extend(packages);
        apt(&arguments)
    });
    if policy {
        // A file left behind only keeps services of packages from starting; not worth failing for.
        let _ = fs::remove_file(POLICY);
    }
    installed.map_err(|error| Error::new(format!("{advice} ({error})")))?;
    if Path::new(program).exists() {
        Ok(())
    } else {
        Err(Error::new(format!("{wanted} is installed, yet {program} is not there")))
    }
}

fn apt(arguments: &[&str]) -> Result<(), Error> {
    let output = Command::new("/usr/bin/apt-get")
        .args(["-o", "DPkg::Lock::Timeout=300"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .map_err(Error::during("apt-get"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(format!("apt-get {}: {}", arguments.join(" "), said.trim())))
}
