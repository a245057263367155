//! Where the servers are, and which of them serves a key.

use std::fmt;

use fred::interfaces::Resp3Frame as Frame;

use crate::error::Failure;
use crate::reply;

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    host: String,
    port: u16,
}

impl Node {
    pub(crate) fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// Reads `host:port`; the host may contain colons.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        (!host.is_empty()).then_some(())?;
        Some(Self::new(host, port.parse().ok()?))
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How the servers work together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One server.
    Standalone(Node),
    /// A cluster, some of whose nodes are these.
    Cluster(Vec<Node>),
    /// The primary that these sentinels name.
    Sentinel { sentinels: Vec<Node>, service: String },
}

/// Which node of a cluster serves which slots.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    /// First slot, last slot, node.
    ranges: Vec<(u16, u16, Node)>,
}

impl Slots {
    /// Reads the answer to `CLUSTER SLOTS` from the node `asked`.
    pub(crate) fn read(answer: Frame, asked: &Node) -> Result<Self, Failure> {
        const WHAT: &str = "CLUSTER SLOTS";
        let mut ranges = Vec::new();
        for range in reply::parts(answer, WHAT)? {
            let mut range = reply::parts(range, WHAT)?.into_iter();
            let mut next = || range.next().ok_or_else(|| Failure::strange(WHAT));
            let first = slot(&next()?)?;
            let last = slot(&next()?)?;
            let mut primary = reply::parts(next()?, WHAT)?.into_iter();
            let host = primary.next().ok_or_else(|| Failure::strange(WHAT))?;
            let port = primary.next().ok_or_else(|| Failure::strange(WHAT))?;
            // No host means the one that was asked.
            let host = match host {
                Frame::Null => asked.host().to_owned(),
                host => match reply::text(host, WHAT)? {
                    host if host.is_empty() => asked.host().to_owned(),
                    host => host,
                },
            };
            let port = u16::try_from(reply::number(&port, WHAT)?).map_err(|_| Failure::strange(WHAT))?;
            ranges.push((first, last, Node::new(host, port)));
        }
        Ok(Self { ranges })
    }

    pub(crate) fn node_of(&self, slot: u16) -> Option<&Node> {
        self.ranges
            .iter()
            .find(|(first, last, _)| (*first..=*last).contains(&slot))
            .map(|(_, _, node)| node)
    }

    /// Each node once.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::new();
        for (_, _, node) in &self.ranges {
            if !nodes.contains(node) {
                nodes.push(node.clone());
            }
        }
        nodes
    }
}

fn slot(frame: &Frame) -> Result<u16, Failure> {
    u16::try_from(reply::number(frame, "CLUSTER SLOTS")?).map_err(|_| Failure::strange("CLUSTER SLOTS"))
}
