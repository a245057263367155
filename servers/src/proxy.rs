//! A proxy between a client and a server that can be made to fail.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::Error;

/// Passes bytes on between clients and one server, until it is told to cut, to refuse, to hold back or to be slow.
///
/// It ends with its value: links are cut and its port refuses.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
    passed: AtomicU64,
}

#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each fault comes and goes by itself")]
struct State {
    /// Nothing passes, and links stay open.
    stalled: bool,
    /// New links are closed at once.
    refusing: bool,
    over: bool,
    delay: Duration,
    links: Vec<TcpStream>,
    /// Answers of the server are thrown away, requests pass.
    deaf: bool,
}

impl Proxy {
    /// A proxy on a free port of the loopback to `port` of it.
    ///
    /// # Errors
    ///
    /// Where no port can be had.
    pub fn to(port: u16) -> Result<Self, Error> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(Error::during("a port for the proxy"))?;
        let address = listener.local_addr().map_err(Error::during("a port for the proxy"))?;
        let shared = Arc::new(Shared {
            target: SocketAddr::from(([127, 0, 0, 1], port)),
            state: Mutex::default(),
            changed: Condvar::new(),
            passed: AtomicU64::new(0),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for link in listener.incoming() {
                let Ok(link) = link else { break };
                if accepting.state().over {
                    break;
                }
                // A link that cannot be made is one that the client sees closed.
                let _ = accepting.join(link);
            }
        });
        Ok(Self { address, shared })
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Cuts all links; new ones are taken.
    pub fn cut(&self) {
        let mut state = self.shared.state();
        for link in state.links.drain(..) {
            let _ = link.shutdown(Shutdown::Both);
        }
    }

    /// Cuts all links and closes new ones at once, until [`heal`](Self::heal).
    pub fn refuse(&self) {
        self.change(|state| state.refusing = true);
        self.cut();
    }

    /// Lets nothing pass, in neither direction, while links stay open: a black hole, until [`heal`](Self::heal).
    pub fn stall(&self) {
        self.change(|state| state.stalled = true);
    }

    /// Lets requests pass and loses the answers, until [`heal`](Self::heal), which also cuts the links that lost some.
    pub fn lose_answers(&self) {
        self.change(|state| state.deaf = true);
    }

    /// Holds each piece back for so long.
    pub fn slow(&self, delay: Duration) {
        self.change(|state| state.delay = delay);
    }

    /// Passes everything on as at first.
    pub fn heal(&self) {
        let was_deaf = self.shared.state().deaf;
        if was_deaf {
            self.cut();
        }
        self.change(|state| {
            state.stalled = false;
            state.refusing = false;
            state.deaf = false;
            state.delay = Duration::ZERO;
        });
    }

    /// How many links are open.
    pub fn links(&self) -> usize {
        self.shared.state().links.len() / 2
    }

    /// How many bytes have passed, both ways.
    pub fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state());
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.change(|state| state.over = true);
        self.cut();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        if self.state().refusing {
            return client.shutdown(Shutdown::Both);
        }
        let server = TcpStream::connect(self.target)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let mut state = self.state();
        state.links.push(client.try_clone()?);
        state.links.push(server.try_clone()?);
        drop(state);
        for (from, to, answers) in [
            (client.try_clone()?, server.try_clone()?, false),
            (server, client, true),
        ] {
            let shared = self.clone();
            thread::spawn(move || {
                let _ = shared.pass(&from, &to, answers);
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                let address = |link: &TcpStream| link.local_addr().ok().zip(link.peer_addr().ok());
                let ended = [address(&from), address(&to)];
                shared.state().links.retain(|link| {
                    let address = address(link);
                    address.is_some() && !ended.contains(&address)
                });
            });
        }
        Ok(())
    }

    #[allow(clippy::disallowed_methods, reason = "a thread of its own, which is to be slow")]
    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream, answers: bool) -> io::Result<()> {
        let mut piece = vec![0; 64 * 1024];
        loop {
            let length = from.read(&mut piece)?;
            if length == 0 {
                return Ok(());
            }
            let mut state = self.state();
            while state.stalled && !state.over {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let (delay, lost) = (state.delay, state.deaf && answers);
            drop(state);
            if !delay.is_zero() {
                thread::sleep(delay);
            }
            if lost {
                continue;
            }
            to.write_all(&piece[..length])?;
            self.passed.fetch_add(length as u64, Ordering::Relaxed);
        }
    }
}
