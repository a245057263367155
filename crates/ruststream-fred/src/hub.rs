//! The links of one connection: which there are, and how a call finds the right one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fred::interfaces::Resp3Frame as Frame;
use fred::types::Value;
use fred::types::config::Config;
use ruststream::transport::ErrorKind;
use tokio::time::{Instant, sleep, timeout_at};

use crate::broker::Settings;
use crate::error::{Failure, Sign};
use crate::link::{Link, Purpose};
use crate::reply;
use crate::topology::{Node, Slots, Topology};

/// How long a call waits before it asks again for a key that is on its way to another node.
const MOVING: Duration = Duration::from_millis(20);

/// The links of one connection. Each node has one that all calls share; a blocking read has one of its own.
pub(crate) struct Hub {
    settings: Arc<Settings>,
    known: Mutex<Known>,
    /// Held while a link is made, so that one attempt serves all who wait.
    making: tokio::sync::Mutex<()>,
    closed: AtomicBool,
}

#[derive(Default)]
struct Known {
    links: HashMap<Node, Arc<Link>>,
    /// The primary that the sentinels named.
    primary: Option<Node>,
    slots: Slots,
    /// The last attempt to make a link that failed, and when it began.
    failed: Option<(Instant, Failure)>,
}

impl Hub {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        Self {
            settings,
            known: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        *self.known() = Known::default();
    }

    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Failure::new(
                ErrorKind::Closed,
                format!("the connection to {} was closed by this process", self.settings.label),
            ));
        }
        Ok(())
    }

    /// Runs a command on the node that serves `slot`, following it when it moves. A command is sent again only where the
    /// server said that it did not run.
    pub(crate) async fn call(
        &self,
        slot: u16,
        command: &'static str,
        arguments: impl Fn() -> Vec<Value>,
    ) -> Result<Frame, Failure> {
        let most = self.settings.command_timeout;
        let until = Instant::now() + most;
        loop {
            let link = self.link(slot).await?;
            let failure = match link.call(command, arguments(), most).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match &failure.sign {
                Sign::Elsewhere => self.forget(&link),
                Sign::Ask(node) => {
                    if let Some(answer) = Box::pin(self.ask(node, command, arguments())).await? {
                        return Ok(answer);
                    }
                }
                _ => return Err(failure),
            }
            if Instant::now() >= until {
                return Err(failure);
            }
            sleep(MOVING).await;
        }
    }

    /// Runs a command on the node that a slot is moving to; `None` where it has to be asked again.
    async fn ask(&self, node: &Node, command: &'static str, arguments: Vec<Value>) -> Result<Option<Frame>, Failure> {
        let link = self.link_to(node).await?;
        let commands = vec![("ASKING", Vec::new()), (command, arguments)];
        let mut answers = link.pipeline(commands, self.settings.command_timeout).await?;
        match answers.pop() {
            Some(Ok(answer)) => Ok(Some(frame_of(answer))),
            Some(Err(failure)) if failure.kind != ErrorKind::Busy => Err(failure),
            _ => Ok(None),
        }
    }

    /// The shared link to the node that serves `slot`.
    pub(crate) async fn link(&self, slot: u16) -> Result<Arc<Link>, Failure> {
        self.check_open()?;
        if let Some(link) = self.live(slot) {
            return Ok(link);
        }
        // Seldom taken, and large: it is not kept in every future that has a link.
        Box::pin(self.make_link(slot)).await
    }

    async fn make_link(&self, slot: u16) -> Result<Arc<Link>, Failure> {
        let began = Instant::now();
        let until = began + self.settings.connect_timeout * 2;
        let Ok(_making) = timeout_at(until, self.making.lock()).await else {
            return Err(self.unreachable());
        };
        if let Some(link) = self.live(slot) {
            return Ok(link);
        }
        // Whoever had the turn before may have tried for us too.
        if let Some((at, failure)) = &self.known().failed
            && *at >= began
        {
            return Err(failure.clone());
        }
        let made = timeout_at(until, self.find(slot))
            .await
            .unwrap_or_else(|_| Err(self.unreachable()));
        if let Err(failure) = &made {
            self.known().failed = Some((Instant::now(), failure.clone()));
        }
        made
    }

    /// A link of one's own to the node that serves `slot`, for what waits or listens.
    pub(crate) async fn own_link(&self, slot: u16, purpose: Purpose) -> Result<Link, Failure> {
        let shared = self.link(slot).await?;
        Box::pin(self.open(shared.node(), purpose)).await
    }

    /// A link to each node: of a cluster all primaries, else the one server.
    pub(crate) async fn every_link(&self) -> Result<Vec<Arc<Link>>, Failure> {
        let first = self.link(0).await?;
        let nodes = self.known().slots.nodes();
        if nodes.is_empty() {
            return Ok(vec![first]);
        }
        let mut links = Vec::with_capacity(nodes.len());
        for node in nodes {
            links.push(self.link_to(&node).await?);
        }
        Ok(links)
    }

    /// What was believed of where keys are is asked for again by the next call.
    pub(crate) fn forget(&self, link: &Link) {
        link.give_up();
        let mut known = self.known();
        known.links.retain(|_, known| !known.is_broken());
        known.primary = None;
        known.slots = Slots::default();
    }

    fn live(&self, slot: u16) -> Option<Arc<Link>> {
        let known = self.known();
        let node = match &self.settings.topology {
            Topology::Standalone(node) => node,
            Topology::Cluster(_) => known.slots.node_of(slot)?,
            Topology::Sentinel { .. } => known.primary.as_ref()?,
        };
        known.links.get(node).filter(|link| !link.is_broken()).cloned()
    }

    fn unreachable(&self) -> Failure {
        Failure::link_lost(
            ErrorKind::Timeout,
            format!(
                "{} cannot be reached within {:?}",
                self.settings.label,
                self.settings.connect_timeout * 2
            ),
        )
    }

    /// Finds the node of a slot, asking whoever knows, and links to it.
    async fn find(&self, slot: u16) -> Result<Arc<Link>, Failure> {
        match &self.settings.topology {
            Topology::Standalone(node) => self.link_to(node).await,
            Topology::Cluster(seeds) => self.find_in_cluster(seeds, slot).await,
            Topology::Sentinel { sentinels, service } => self.find_primary(sentinels, service).await,
        }
    }

    async fn find_in_cluster(&self, seeds: &[Node], slot: u16) -> Result<Arc<Link>, Failure> {
        // Nodes that were there last come first: the seeds may have left long ago.
        let mut asked: Vec<Node> = self.known().links.keys().cloned().collect();
        fastrand::shuffle(&mut asked);
        asked.extend(
            seeds
                .iter()
                .filter(|seed| !asked.contains(seed))
                .cloned()
                .collect::<Vec<_>>(),
        );
        let mut last = None;
        for node in &asked {
            match self.ask_for_slots(node).await {
                Ok(slots) => {
                    let target = slots.node_of(slot).cloned();
                    self.known().slots = slots;
                    match target {
                        Some(target) => match self.link_to(&target).await {
                            Ok(link) => return Ok(link),
                            // The one who answered may not know yet that it is gone.
                            Err(failure) => last = Some(failure),
                        },
                        None => {
                            last = Some(Failure::new(
                                ErrorKind::Busy,
                                format!("no node of {} serves slot {slot} now", self.settings.label),
                            ));
                        }
                    }
                }
                Err(failure) => last = Some(failure),
            }
        }
        self.known().slots = Slots::default();
        Err(last.unwrap_or_else(|| self.unreachable()))
    }

    async fn ask_for_slots(&self, node: &Node) -> Result<Slots, Failure> {
        let link = self.link_to(node).await?;
        let most = self.settings.connect_timeout;
        let answer = link.call("CLUSTER", vec!["SLOTS".into()], most).await?;
        Slots::read(answer, node)
    }

    async fn find_primary(&self, sentinels: &[Node], service: &str) -> Result<Arc<Link>, Failure> {
        let mut last = None;
        for sentinel in sentinels {
            match self.ask_sentinel(sentinel, service).await {
                Ok(node) => match self.link_to_primary(&node).await {
                    Ok(link) => {
                        self.known().primary = Some(node);
                        return Ok(link);
                    }
                    Err(failure) => last = Some(failure),
                },
                Err(failure) => last = Some(failure),
            }
        }
        Err(last.unwrap_or_else(|| self.unreachable()))
    }

    async fn ask_sentinel(&self, sentinel: &Node, service: &str) -> Result<Node, Failure> {
        const WHAT: &str = "SENTINEL get-master-addr-by-name";
        let most = self.settings.connect_timeout;
        let link = Link::open(&self.settings.sentinel_config, sentinel, most, most, Purpose::Commands).await?;
        let arguments = vec!["get-master-addr-by-name".into(), service.into()];
        match link.call("SENTINEL", arguments, most).await? {
            Frame::Null => Err(Failure::new(
                ErrorKind::Invalid,
                format!("the sentinel {sentinel} knows no service {service:?}: give the name that it monitors"),
            )),
            answer => {
                let [host, port] = reply::exactly(answer, WHAT)?;
                let port = u16::try_from(reply::number(&port, WHAT)?).map_err(|_| Failure::strange(WHAT))?;
                Ok(Node::new(reply::text(host, WHAT)?, port))
            }
        }
    }

    /// A sentinel may name a server that has been demoted, so the server itself is asked what it is.
    async fn link_to_primary(&self, node: &Node) -> Result<Arc<Link>, Failure> {
        let link = self.link_to(node).await?;
        let answer = link.call("ROLE", Vec::new(), self.settings.connect_timeout).await?;
        let role = reply::parts(answer, "ROLE")?.into_iter().next();
        let role = role.map(|role| reply::text(role, "ROLE")).transpose()?;
        if role.as_deref() == Some("master") {
            return Ok(link);
        }
        link.give_up();
        Err(Failure::link_lost(
            ErrorKind::Unavailable,
            format!("{node} is no primary any more, and the sentinels still name it; they are asked again"),
        ))
    }

    async fn link_to(&self, node: &Node) -> Result<Arc<Link>, Failure> {
        if let Some(link) = self.known().links.get(node).filter(|link| !link.is_broken()) {
            return Ok(Arc::clone(link));
        }
        let link = Arc::new(self.open(node, Purpose::Commands).await?);
        self.check_open()?;
        let mut known = self.known();
        known.links.retain(|_, known| !known.is_broken());
        known.links.insert(node.clone(), Arc::clone(&link));
        Ok(link)
    }

    async fn open(&self, node: &Node, purpose: Purpose) -> Result<Link, Failure> {
        let config = self.config().await?;
        let Settings {
            connect_timeout,
            command_timeout,
            ..
        } = *self.settings;
        Link::open(&config, node, connect_timeout, command_timeout, purpose).await
    }

    /// The settings of a link, with credentials of now.
    async fn config(&self) -> Result<Cow<'_, Config>, Failure> {
        let config = &self.settings.config;
        Ok(match &self.settings.credentials {
            None => Cow::Borrowed(config),
            Some(provider) => Cow::Owned(provider.apply(config, self.settings.connect_timeout).await?),
        })
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("label", &self.settings.label)
            .finish_non_exhaustive()
    }
}

/// Only the few kinds that commands sent after `ASKING` answer with.
fn frame_of(value: Value) -> Frame {
    match value {
        Value::Integer(data) => Frame::Number { data, attributes: None },
        Value::String(text) => Frame::BlobString {
            data: text.into_inner(),
            attributes: None,
        },
        Value::Bytes(data) => Frame::BlobString { data, attributes: None },
        Value::Array(values) => Frame::Array {
            data: values.into_iter().map(frame_of).collect(),
            attributes: None,
        },
        _ => Frame::Null,
    }
}
