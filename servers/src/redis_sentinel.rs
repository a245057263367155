//! A Redis primary, its replica, and a sentinel that watches them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::kind::Recipe;
use crate::process::wait_until;
use crate::redis::ask;
use crate::redis_nodes::{all_there, choose_ports, node_line, read_ports, together};
use crate::{Error, Settings};

/// What the sentinel calls the primary.
const SERVICE: &str = "main";

pub(crate) struct Sentinel;

impl Recipe for Sentinel {
    fn prepare(&self, place: &Path, port: u16, _settings: Settings) -> Result<(), Error> {
        let ports = choose_ports(place, None, 2)?;
        // The sentinel writes into its file.
        let text = format!(
            "port {port}\nbind 127.0.0.1\nprotected-mode no\ndir {}\nsentinel monitor {SERVICE} 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds {SERVICE} 2000\nsentinel failover-timeout {SERVICE} 6000\n",
            place.display(),
            ports[0],
        );
        fs::write(place.join("sentinel.conf"), text).map_err(Error::during("sentinel.conf"))
    }

    fn command(&self, place: &Path, _port: u16, settings: Settings) -> Command {
        let ports = read_ports(place).unwrap_or_default();
        let durability = if settings.durable {
            "--appendonly yes --appendfsync always"
        } else {
            "--appendonly no"
        };
        let mut lines: Vec<String> = ports
            .iter()
            .filter_map(|port| {
                // Which of them is the primary is the sentinel's to say once it has changed.
                let is_replica = Some(port) != ports.first();
                let more = if is_replica {
                    format!("{durability} --replicaof 127.0.0.1 {}", ports[0])
                } else {
                    durability.to_owned()
                };
                node_line(place, *port, &more).ok()
            })
            .collect();
        lines.push(format!(
            "/usr/bin/redis-server {} --sentinel",
            place.join("sentinel.conf").display()
        ));
        together(place, &lines)
    }

    fn answers(&self, place: &Path, port: u16) -> bool {
        read_ports(place).is_ok_and(|ports| all_there(&ports) && all_there(&[port]))
    }

    fn set_up(&self, _place: &Path, port: u16) -> Result<(), Error> {
        // It learns of the replica from the primary, and can fail over to none it does not know.
        let knows = || {
            let replicas = ask(port, &["SENTINEL", "replicas", SERVICE]).unwrap_or_default();
            replicas.contains("master-link-status") && replicas.contains("\nok\n")
        };
        if wait_until(Duration::from_mins(1), knows) {
            Ok(())
        } else {
            Err(Error::new("the sentinel did not learn of the replica within a minute"))
        }
    }

    fn url(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}")
    }
}
