//! Several Redis processes as one server.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::process::{self, free_port};
use crate::redis::is_there;
use crate::{Error, Instance};

/// The file with the ports of all nodes.
const PORTS: &str = "ports";

/// The nodes of a [cluster](crate::Kind::RedisCluster), or the primary and the replica of a [sentinel](crate::Kind::RedisSentinel),
/// which can be made to fail one by one.
#[derive(Debug)]
pub struct RedisNodes<'a> {
    instance: &'a Instance,
}

impl<'a> RedisNodes<'a> {
    /// The nodes of an instance.
    pub fn of(instance: &'a Instance) -> Self {
        Self { instance }
    }

    /// The ports of the nodes: of a cluster all six, of a sentinel its primary and its replica as they were first.
    ///
    /// # Errors
    ///
    /// Where the instance is of another kind.
    pub fn ports(&self) -> Result<Vec<u16>, Error> {
        let ports = read_ports(self.instance.place())?;
        let is_cluster = ports.first() == Some(&self.instance.port());
        // The port of a sentinel's instance is that of the sentinel, which is no node.
        Ok(if is_cluster {
            ports
        } else {
            ports.into_iter().take(2).collect()
        })
    }

    /// Stops the node on this port where it is (SIGSTOP): links stay open and nothing answers.
    ///
    /// # Errors
    ///
    /// Where there is no such node.
    pub fn pause(&self, port: u16) -> Result<(), Error> {
        process::signal(self.process(port)?, Signal::STOP);
        Ok(())
    }

    /// Lets it go on after [`pause`](Self::pause).
    ///
    /// # Errors
    ///
    /// Where there is no such node.
    pub fn resume(&self, port: u16) -> Result<(), Error> {
        process::signal(self.process(port)?, Signal::CONT);
        Ok(())
    }

    /// Ends the node on this port at once.
    ///
    /// # Errors
    ///
    /// Where there is no such node.
    pub fn kill(&self, port: u16) -> Result<(), Error> {
        process::signal(self.process(port)?, Signal::KILL);
        Ok(())
    }

    fn process(&self, port: u16) -> Result<u32, Error> {
        let path = self.instance.place().join(format!("{port}.pid"));
        let text = fs::read_to_string(&path).map_err(Error::during(path.display()))?;
        text.trim()
            .parse()
            .map_err(|_| Error::new(format!("{} holds no process id", path.display())))
    }
}

/// Chooses the ports of `count` nodes, one of them `first`, and notes them.
pub(crate) fn choose_ports(place: &Path, first: Option<u16>, count: usize) -> Result<Vec<u16>, Error> {
    let mut ports: Vec<u16> = first.into_iter().collect();
    while ports.len() < count {
        let port = free_port()?;
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    let text: Vec<String> = ports.iter().map(u16::to_string).collect();
    fs::write(place.join(PORTS), text.join(" ")).map_err(Error::during(PORTS))?;
    Ok(ports)
}

pub(crate) fn read_ports(place: &Path) -> Result<Vec<u16>, Error> {
    let path = place.join(PORTS);
    let text = fs::read_to_string(&path).map_err(Error::during(path.display()))?;
    let ports: Option<Vec<u16>> = text.split_whitespace().map(|port| port.parse().ok()).collect();
    ports.ok_or_else(|| Error::new(format!("{} holds no ports", path.display())))
}

/// A shell that runs one process a line, ends them when it is told to, and stays until all have ended.
pub(crate) fn together(place: &Path, lines: &[String]) -> Command {
    let started: Vec<String> = lines.iter().map(|line| format!("{line} &")).collect();
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(format!(
            "trap 'kill $(jobs -p)' TERM\n{}\nwait\nwait",
            started.join("\n")
        ))
        .current_dir(place);
    command
}

/// The command line of a node in a directory of its own.
pub(crate) fn node_line(place: &Path, port: u16, more: &str) -> Result<String, Error> {
    let folder = place.join(format!("node-{port}"));
    fs::create_dir_all(&folder).map_err(Error::during(folder.display()))?;
    Ok(format!(
        "/usr/bin/redis-server --port {port} --bind 127.0.0.1 --save '' --protected-mode no --repl-diskless-sync-delay 0 \
         --client-output-buffer-limit pubsub 0 0 0 --pidfile {} --dir {} {more}",
        place.join(format!("{port}.pid")).display(),
        folder.display(),
    ))
}

pub(crate) fn all_there(ports: &[u16]) -> bool {
    ports.iter().all(|port| is_there(*port))
}
