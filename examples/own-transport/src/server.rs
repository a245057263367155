//! The server: named queues, and what each client has in hand.
//!
//! It counts an attempt when it hands a message out, and gives back what a client had in hand when the connection that
//! fetched it ends. It knows no delay, no dead letter and no lease. A real one would also write to disk; here a [`Store`]
//! stands for the disk and outlives the server.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use tokio::net::{TcpListener, ToSocketAddrs};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use crate::wire::{self, Link};

/// A queue server, listening until it is stopped or dropped.
pub struct Server {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Starts to listen; `127.0.0.1:0` picks a free port.
    ///
    /// # Errors
    ///
    /// Where the address is taken or is none of this machine.
    pub async fn start(address: impl ToSocketAddrs, store: Store) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            let mut sessions = JoinSet::new();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(sessions.spawn(serve(stream, store.session()))),
                    // Out of file descriptors, for one: it passes when a session ends.
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
                while sessions.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening and cuts every connection.
    pub async fn stop(mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Answers one client until it goes, or talks what is no request.
async fn serve(stream: tokio::net::TcpStream, session: Session) {
    let Ok(mut link) = Link::new(stream) else { return };
    while let Ok(request) = link.frame().await {
        let Ok(answer) = answer(request, &session, &mut link).await else {
            return;
        };
        link.send(&answer);
    }
}

async fn answer(mut request: Bytes, session: &Session, link: &mut Link) -> io::Result<Vec<u8>> {
    match request.try_get_u8()? {
        wire::HELLO => Ok(wire::GREETING.to_vec()),
        wire::PUBLISH => session.publish(request),
        wire::FETCH => {
            let room = request.try_get_u32_le()?;
            let until = Instant::now() + Duration::from_millis(request.try_get_u32_le()?.into());
            let queue = wire::get_text(&mut request)?;
            loop {
                // Listens before it looks, so that what comes in between is not missed.
                let mut news = std::pin::pin!(session.store.0.news.notified());
                news.as_mut().enable();
                let answer = session.take(&queue, room);
                if !answer.is_empty() {
                    return Ok(answer);
                }
                tokio::select! {
                    () = news => {}
                    () = sleep_until(until) => return Ok(answer),
                    // The client has gone, or has something else to ask.
                    heard = link.heard() => return heard.map(|()| answer),
                }
            }
        }
        wire::SETTLE => session.settle(request),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// What a server keeps. Clones are the same store.
#[derive(Clone, Default)]
pub struct Store(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    last_number: u64,
    /// By queue, then by place.
    waiting: HashMap<String, BTreeMap<u64, Message>>,
    /// By delivery: the session that has it, and the message.
    in_hand: BTreeMap<u64, (u64, Message)>,
}

struct Message {
    queue: String,
    /// Its place among the messages of the queue, kept through every retry.
    place: u64,
    attempts: u32,
    body: Bytes,
}

impl State {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn put(&mut self, message: Message) {
        let queue = self.waiting.entry(message.queue.clone()).or_default();
        queue.insert(message.place, message);
    }
}

impl Store {
    /// How many messages it keeps, those in hand included.
    pub fn len(&self) -> usize {
        let state = self.state();
        state.in_hand.len() + state.waiting.values().map(BTreeMap::len).sum::<usize>()
    }

    /// True if it keeps none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self) -> Session {
        let number = self.state().number();
        Session {
            number,
            store: self.clone(),
        }
    }
}

/// A connected client. What it has in hand is given back when it ends.
struct Session {
    number: u64,
    store: Store,
}

impl Session {
    fn publish(&self, mut request: Bytes) -> io::Result<Vec<u8>> {
        let mut messages = Vec::new();
        while !request.is_empty() {
            messages.push((wire::get_text(&mut request)?, wire::get_part(&mut request)?));
        }
        let mut state = self.store.state();
        for (queue, body) in messages {
            let place = state.number();
            state.put(Message {
                queue,
                place,
                attempts: 0,
                body,
            });
        }
        self.store.0.news.notify_waiters();
        Ok(Vec::new())
    }

    fn take(&self, queue: &str, room: u32) -> Vec<u8> {
        let mut state = self.store.state();
        let mut answer = Vec::new();
        for _ in 0..room {
            let first = state.waiting.get_mut(queue).and_then(BTreeMap::pop_first);
            let Some((_, mut message)) = first else { break };
            message.attempts += 1;
            let delivery = state.number();
            answer.put_u64_le(delivery);
            answer.put_u32_le(message.attempts);
            wire::put_part(&mut answer, &message.body);
            state.in_hand.insert(delivery, (self.number, message));
            if answer.len() > wire::GROUP_BYTES {
                break;
            }
        }
        answer
    }

    fn settle(&self, mut request: Bytes) -> io::Result<Vec<u8>> {
        let mut over = 0_u32;
        let mut state = self.store.state();
        while !request.is_empty() {
            let (delivery, verdict) = (request.try_get_u64_le()?, request.try_get_u8()?);
            let attempts = match verdict {
                wire::RETURN => Some(request.try_get_u32_le()?),
                _ => None,
            };
            let Some((_, mut message)) = state.in_hand.remove(&delivery) else {
                over += 1;
                continue;
            };
            if verdict == wire::RELEASE {
                message.attempts -= 1;
            }
            message.attempts = attempts.unwrap_or(message.attempts);
            if verdict != wire::ACK {
                state.put(message);
            }
        }
        self.store.0.news.notify_waiters();
        Ok(over.to_le_bytes().to_vec())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut state = self.store.state();
        let lost: Vec<_> = state
            .in_hand
            .extract_if(.., |_, (session, _)| *session == self.number)
            .collect();
        for (_, (_, message)) in lost {
            state.put(message);
        }
        self.store.0.news.notify_waiters();
    }
}
