//! `Mosquitto`, as Debian 12 has it (2.0): one server of MQTT.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::kind::Recipe;
use crate::{Error, Settings};

pub(crate) const SERVER: &str = "/usr/sbin/mosquitto";

pub(crate) struct Mosquitto;

impl Recipe for Mosquitto {
    fn prepare(&self, place: &Path, port: u16, settings: Settings) -> Result<(), Error> {
        // Without a user it becomes `mosquitto`, who may not write to a directory of root's.
        let user = if rustix::process::geteuid().is_root() {
            "user root\n"
        } else {
            ""
        };
        let persistence = if settings.durable {
            // It stores by the number of changes, one at least, and at its end; a kill loses what came since.
            format!(
                "persistence true\npersistence_location {}/\nautosave_on_changes true\nautosave_interval 1\n",
                place.display()
            )
        } else {
            "persistence false\n".to_owned()
        };
        // What a client does not take in time would otherwise be dropped, at 20 on the way and 1,000 waiting.
        let text = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\nlog_dest stderr\nlog_type error\n\
             log_type warning\nmax_inflight_messages 0\nmax_queued_messages 0\nmax_queued_bytes 0\nqueue_qos0_messages true\n\
             {user}{persistence}"
        );
        fs::write(place.join("mosquitto.conf"), text).map_err(Error::during("mosquitto.conf"))
    }

    fn command(&self, place: &Path, _port: u16, _settings: Settings) -> Command {
        let mut command = Command::new(SERVER);
        command.arg("-c").arg(place.join("mosquitto.conf"));
        command
    }

    fn answers(&self, _place: &Path, port: u16) -> bool {
        // A CONNECT of MQTT 3.1.1 without a name, and the CONNACK that takes it.
        let greeting = || -> std::io::Result<bool> {
            let mut link = TcpStream::connect(("127.0.0.1", port))?;
            link.set_read_timeout(Some(Duration::from_secs(1)))?;
            link.write_all(b"\x10\x0c\0\x04MQTT\x04\x02\0\x0a\0\0")?;
            let mut answer = [0; 4];
            link.read_exact(&mut answer)?;
            Ok(answer[0] == 0x20 && answer[3] == 0)
        };
        greeting().unwrap_or(false)
    }

    fn url(&self, port: u16) -> String {
        format!("mqtt://127.0.0.1:{port}")
    }
}
