//! Redis, one server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::kind::Recipe;
use crate::{Error, Settings};

pub(crate) struct Redis;

impl Recipe for Redis {
    fn prepare(&self, _place: &Path, _port: u16, _settings: Settings) -> Result<(), Error> {
        Ok(())
    }

    fn command(&self, place: &Path, port: u16, settings: Settings) -> Command {
        let mut command = Command::new("/usr/bin/redis-server");
        command
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--protected-mode",
                "no",
            ])
            // A slow subscriber is the client's own business here, as on the benchmark pages.
            .args(["--client-output-buffer-limit", "pubsub 0 0 0", "--appendonly"])
            .arg(if settings.durable { "yes" } else { "no" });
        if settings.durable {
            command.args(["--appendfsync", "always"]);
        }
        command.arg("--dir").arg(place);
        command
    }

    fn answers(&self, _place: &Path, port: u16) -> bool {
        is_there(port)
    }

    fn url(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}")
    }
}

/// Whether a server answers: it says LOADING until its file is read.
pub(crate) fn is_there(port: u16) -> bool {
    let ping = || -> std::io::Result<bool> {
        let mut link = TcpStream::connect(("127.0.0.1", port))?;
        link.set_read_timeout(Some(Duration::from_secs(1)))?;
        link.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        link.read_exact(&mut answer)?;
        Ok(&answer == b"+PONG")
    };
    ping().unwrap_or(false)
}

/// Runs `redis-cli` and answers what it says.
pub(crate) fn ask(port: u16, words: &[&str]) -> Result<String, Error> {
    let output = Command::new("/usr/bin/redis-cli")
        .args(["-p", &port.to_string()])
        .args(words)
        .output()
        .map_err(Error::during("redis-cli"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(said)
    } else {
        Err(Error::new(format!("redis-cli {}: {}", words.join(" "), said.trim())))
    }
}
