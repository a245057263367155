//! `PostgreSQL`, as Debian 12 has it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::kind::Recipe;
use crate::process::User;
use crate::{Error, Settings};

pub(crate) const SERVER: &str = "/usr/lib/postgresql/15/bin/postgres";
const INITDB: &str = "/usr/lib/postgresql/15/bin/initdb";

pub(crate) struct Postgres;

impl Recipe for Postgres {
    fn prepare(&self, place: &Path, _port: u16, _settings: Settings) -> Result<(), Error> {
        let mut command = Command::new(INITDB);
        command
            .args([
                "-A",
                "trust",
                "-U",
                "postgres",
                "-E",
                "UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
                "-D",
            ])
            .arg(place.join("data"));
        if let Some(user) = User::to_become(self.user())? {
            user.run(&mut command);
        }
        let output = command.output().map_err(Error::during(INITDB))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Error::new(format!("initdb: {}", said.trim())))
    }

    fn command(&self, place: &Path, port: u16, settings: Settings) -> Command {
        let mut command = Command::new(SERVER);
        command
            .arg("-D")
            .arg(place.join("data"))
            .args(["-p", &port.to_string()]);
        let durability = if settings.durable { "on" } else { "off" };
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "shared_buffers=512MB",
            "max_wal_size=4GB",
            "checkpoint_timeout=30min",
            "max_connections=200",
        ] {
            command.args(["-c", setting]);
        }
        for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
            command.args(["-c", &format!("{setting}={durability}")]);
        }
        command
    }

    fn answers(&self, _place: &Path, port: u16) -> bool {
        // The port opens before the database does: only an accepted login says that it works.
        let login = || -> std::io::Result<bool> {
            let mut link = TcpStream::connect(("127.0.0.1", port))?;
            link.set_read_timeout(Some(Duration::from_secs(1)))?;
            let words = b"user\0postgres\0database\0postgres\0\0";
            let length = 8 + u32::try_from(words.len()).unwrap_or_default();
            link.write_all(&[&length.to_be_bytes()[..], &196_608_u32.to_be_bytes(), words].concat())?;
            let mut kind = [0; 1];
            link.read_exact(&mut kind)?;
            Ok(kind == *b"R")
        };
        login().unwrap_or(false)
    }

    /// Told to end by TERM it would wait for its clients.
    fn stops_by(&self) -> Signal {
        Signal::INT
    }

    fn user(&self) -> Option<&'static str> {
        Some("postgres")
    }

    fn url(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres")
    }
}
