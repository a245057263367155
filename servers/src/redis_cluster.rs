//! A Redis cluster of six nodes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::kind::Recipe;
use crate::process::wait_until;
use crate::redis::ask;
use crate::redis_nodes::{all_there, choose_ports, node_line, read_ports, together};
use crate::{Error, Settings};

/// Primaries and replicas.
const NODES: usize = 6;

/// How long the nodes may take to agree.
const AGREEMENT: Duration = Duration::from_mins(1);

pub(crate) struct Cluster;

impl Recipe for Cluster {
    fn prepare(&self, place: &Path, port: u16, _settings: Settings) -> Result<(), Error> {
        // The ports of the bus come behind those of the nodes: the default, 10,000 above, may be no port.
        let nodes = choose_ports(place, Some(port), NODES * 2)?;
        for port in &nodes[..NODES] {
            node_line(place, *port, "")?;
        }
        Ok(())
    }

    fn command(&self, place: &Path, _port: u16, settings: Settings) -> Command {
        let ports = read_ports(place).unwrap_or_default();
        let durability = if settings.durable {
            "--appendonly yes --appendfsync always"
        } else {
            "--appendonly no"
        };
        let lines: Vec<String> = ports
            .iter()
            .zip(ports.iter().skip(NODES))
            .filter_map(|(port, bus)| {
                let more = format!(
                    "--cluster-enabled yes --cluster-config-file nodes.conf --cluster-port {bus} --cluster-node-timeout 2000 {durability}"
                );
                node_line(place, *port, &more).ok()
            })
            .collect();
        together(place, &lines)
    }

    fn answers(&self, place: &Path, _port: u16) -> bool {
        read_ports(place).is_ok_and(|ports| all_there(&ports[..NODES]))
    }

    fn set_up(&self, place: &Path, port: u16) -> Result<(), Error> {
        let ports = read_ports(place)?;
        let nodes: Vec<String> = ports[..NODES].iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let mut words = vec!["--cluster", "create"];
        words.extend(nodes.iter().map(String::as_str));
        words.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        ask(port, &words)?;
        // All know all, and each primary has a replica that can take over.
        let agreed = || {
            ports[..NODES].iter().all(|port| {
                let info = ask(*port, &["CLUSTER", "INFO"]).unwrap_or_default();
                let nodes = ask(*port, &["CLUSTER", "NODES"]).unwrap_or_default();
                info.contains("cluster_state:ok")
                    && nodes.matches(" slave ").count() + nodes.matches("myself,slave").count() == NODES / 2
            })
        };
        if wait_until(AGREEMENT, agreed) {
            Ok(())
        } else {
            Err(Error::new("the nodes of the cluster did not agree within a minute"))
        }
    }

    fn url(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}")
    }
}
