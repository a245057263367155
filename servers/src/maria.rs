//! `MariaDB`, as Debian 12 has it.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::kind::Recipe;
use crate::process::User;
use crate::{Error, Settings};

pub(crate) const SERVER: &str = "/usr/sbin/mariadbd";
const INSTALL: &str = "/usr/bin/mariadb-install-db";
/// The kernel's queues for asynchronous reads and writes are few, and servers of several tests at once use them up.
const NO_RINGS: &str = "--innodb-use-native-aio=0";

/// Run at each start: the user that tests log in as, by TCP, where names of hosts are not looked up.
const WELCOME: &str = "CREATE DATABASE IF NOT EXISTS ruststream;
CREATE USER IF NOT EXISTS 'ruststream'@'127.0.0.1' IDENTIFIED BY 'ruststream';
GRANT ALL ON *.* TO 'ruststream'@'127.0.0.1';
";

pub(crate) struct Maria;

impl Recipe for Maria {
    fn prepare(&self, place: &Path, _port: u16, _settings: Settings) -> Result<(), Error> {
        let mut command = Command::new(INSTALL);
        command
            .args([
                "--no-defaults",
                NO_RINGS,
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ])
            .arg(format!("--datadir={}", place.join("data").display()));
        if let Some(user) = User::to_become(self.user())? {
            user.run(&mut command);
        }
        let output = command.output().map_err(Error::during(INSTALL))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout);
            return Err(Error::new(format!("mariadb-install-db: {}", said.trim())));
        }
        let welcome = place.join("welcome.sql");
        fs::write(&welcome, WELCOME).map_err(Error::during(welcome.display()))
    }

    fn command(&self, place: &Path, port: u16, settings: Settings) -> Command {
        let mut command = Command::new(SERVER);
        let within = |name: &str| place.join(name).display().to_string();
        command.args([
            "--no-defaults",
            NO_RINGS,
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--skip-log-bin",
        ]);
        command.args([
            "--innodb-buffer-pool-size=512M",
            "--innodb-log-file-size=256M",
            "--max-connections=200",
            "--max-connect-errors=1000000",
            "--max-allowed-packet=128M",
        ]);
        command.arg(format!("--port={port}"));
        command.arg(format!("--datadir={}", within("data")));
        command.arg(format!("--socket={}", within("s.sock")));
        command.arg(format!("--pid-file={}", within("m.pid")));
        command.arg(format!("--init-file={}", within("welcome.sql")));
        let flush = u8::from(settings.durable);
        command.arg(format!("--innodb-flush-log-at-trx-commit={flush}"));
        command
    }

    fn answers(&self, _place: &Path, port: u16) -> bool {
        // It greets with the version of its protocol, behind four bytes of length and number.
        let greeting = || -> std::io::Result<bool> {
            let mut link = TcpStream::connect(("127.0.0.1", port))?;
            link.set_read_timeout(Some(Duration::from_secs(1)))?;
            let mut start = [0; 5];
            link.read_exact(&mut start)?;
            Ok(start[4] == 10)
        };
        greeting().unwrap_or(false)
    }

    fn user(&self) -> Option<&'static str> {
        Some("mysql")
    }

    fn url(&self, port: u16) -> String {
        format!("mysql://ruststream:ruststream@127.0.0.1:{port}/ruststream")
    }
}
