//! `RabbitMQ`, as Debian 12 has it (3.10): one node, with an Erlang name service and a cookie of its own.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::kind::Recipe;
use crate::process::{self, User};
use crate::{Error, Settings};

pub(crate) const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const CONTROL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";

pub(crate) struct Rabbit;

impl Recipe for Rabbit {
    fn prepare(&self, place: &Path, port: u16, _settings: Settings) -> Result<(), Error> {
        let write = |name: &str, text: &str| fs::write(place.join(name), text).map_err(Error::during(name));
        for directory in ["home", "data", "log"] {
            fs::create_dir_all(place.join(directory)).map_err(Error::during(directory))?;
        }
        // What the server confirms of persistent messages is on the disk, so durability needs no setting.
        write(
            "rabbitmq.conf",
            &format!(
                "listeners.tcp.1 = 127.0.0.1:{port}\nloopback_users.guest = true\nlog.file = false\nlog.console = true\n\
                 log.console.level = warning\nvm_memory_high_watermark.absolute = 4GB\ndisk_free_limit.absolute = 50MB\n"
            ),
        )?;
        write(
            "enabled_plugins",
            "[rabbitmq_consistent_hash_exchange,rabbitmq_auth_mechanism_ssl].\n",
        )?;
        // The name service and the port for other nodes have to be this node's own, or it would join that of the machine.
        let (names, node) = (process::free_port()?, process::free_port()?);
        write("ports", &format!("{names} {node}"))
    }

    fn command(&self, place: &Path, _port: u16, _settings: Settings) -> Command {
        // A kill leaves the file behind, and the next start would take its process for a running node.
        let _ = fs::remove_file(place.join("rabbit.pid"));
        let mut command = Command::new(SERVER);
        environment(&mut command, place);
        // Erlang's schedulers would otherwise spin for work, on the CPUs of what is measured.
        command.env(
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            "+sbwt none +sbwtdcpu none +sbwtdio none",
        );
        command
    }

    fn answers(&self, _place: &Path, port: u16) -> bool {
        // The port opens when the node has booted; a frame of method `connection.start` is the greeting.
        let greeting = || -> std::io::Result<bool> {
            let mut link = TcpStream::connect(("127.0.0.1", port))?;
            link.set_read_timeout(Some(Duration::from_secs(2)))?;
            link.write_all(b"AMQP\0\0\x09\x01")?;
            let mut kind = [0; 1];
            link.read_exact(&mut kind)?;
            Ok(kind == [1])
        };
        greeting().unwrap_or(false)
    }

    fn clean_up(&self, place: &Path, _port: u16) {
        // The node starts the name service as a daemon, which outlives it.
        let mut command = Command::new("/usr/bin/epmd");
        environment(&mut command, place);
        command.arg("-kill").stdout(Stdio::null()).stderr(Stdio::null());
        if let Ok(Some(user)) = User::to_become(self.user()) {
            user.run(&mut command);
        }
        // It refuses as long as it has not seen that the node is gone.
        let ended = || command.status().is_ok_and(|status| status.success());
        process::wait_until(Duration::from_secs(2), ended);
    }

    fn user(&self) -> Option<&'static str> {
        Some("rabbitmq")
    }

    fn url(&self, port: u16) -> String {
        format!("amqp://guest:guest@127.0.0.1:{port}/%2f")
    }
}

/// Adds lines to the configuration of the node in `place`.
pub(crate) fn configure(place: &Path, lines: &str) -> Result<(), Error> {
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(place.join("rabbitmq.conf"))
        .map_err(Error::during("rabbitmq.conf"))?;
    file.write_all(lines.as_bytes()).map_err(Error::during("rabbitmq.conf"))
}

/// Runs `rabbitmqctl` against the node in `place` and answers what it prints.
pub(crate) fn control(place: &Path, arguments: &[&str]) -> Result<String, Error> {
    let mut command = Command::new(CONTROL);
    environment(&mut command, place);
    if let Some(user) = User::to_become(Rabbit.user())? {
        user.run(&mut command);
    }
    let output = command
        .arg("--quiet")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::during(CONTROL))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(format!(
        "rabbitmqctl {}: {}",
        arguments.join(" "),
        said.trim()
    )))
}

fn environment(command: &mut Command, place: &Path) {
    let ports = fs::read_to_string(place.join("ports")).unwrap_or_default();
    let (names, node) = ports.split_once(' ').unwrap_or_default();
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LANG", "C.UTF-8")
        .envs([
            ("HOME", place.join("home")),
            ("RABBITMQ_MNESIA_BASE", place.join("data")),
            ("RABBITMQ_LOG_BASE", place.join("log")),
            ("RABBITMQ_CONFIG_FILE", place.join("rabbitmq.conf")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", place.join("enabled_plugins")),
            ("RABBITMQ_PID_FILE", place.join("rabbit.pid")),
        ])
        .envs([
            ("RABBITMQ_CONF_ENV_FILE", OsStr::new("/dev/null")),
            ("RABBITMQ_NODENAME", OsStr::new("ruststream@localhost")),
            ("RABBITMQ_DIST_PORT", OsStr::new(node)),
            ("ERL_EPMD_PORT", OsStr::new(names)),
            ("ERL_EPMD_ADDRESS", OsStr::new("127.0.0.1")),
        ]);
}
