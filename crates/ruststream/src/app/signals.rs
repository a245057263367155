//! SIGTERM and SIGINT, heard on a thread of their own, so that handlers which block all threads of the service do not keep its
//! process from ending.

use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::AppError;

/// What comes so soon after the first signal is its echo and not a second: GNU `timeout`, for one, signals its child and then the
/// group that the child is in. No person is that quick.
const ECHO: Duration = Duration::from_millis(100);
/// How long the service may show no sign of life once its grace period is over.
const SILENCE: Duration = Duration::from_secs(3);
/// The time between two looks at that.
const LOOK: Duration = Duration::from_millis(500);

/// Listens for the signals that end a service, until it is dropped.
pub(super) struct Signals {
    first: watch::Receiver<Option<&'static str>>,
    _listening: DropGuard,
}

impl Signals {
    /// Begins to listen for a service that runs on the current runtime and has this grace period. From the second signal on, and
    /// where the service is dead to the first, the process is ended from here.
    pub(super) fn listen(grace: Duration) -> Result<Self, AppError> {
        let failed = |error| AppError::broker("cannot listen for signals", error);
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let heard = {
            let _entered = runtime.enter();
            Heard::new()
        };
        let heard = match heard {
            Ok(heard) => heard,
            Err(error) => {
                runtime.shutdown_background();
                return Err(failed(error));
            }
        };
        let (tell, first) = watch::channel(None);
        let listening = CancellationToken::new();
        let ended = listening.clone();
        let service = Handle::current();
        let log = tracing::dispatcher::get_default(Clone::clone);
        let listen = move || {
            let listen = || runtime.block_on(ended.run_until_cancelled(attend(heard, &tell, &service, grace)));
            tracing::dispatcher::with_default(&log, listen);
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(listen)
            .map_err(failed)?;
        Ok(Self {
            first,
            _listening: listening.drop_guard(),
        })
    }

    /// Waits for the first signal and answers its name.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it loses no signal.
    pub(super) async fn first(&mut self) -> &'static str {
        loop {
            if let Some(name) = *self.first.borrow_and_update() {
                return name;
            }
            if self.first.changed().await.is_err() {
                // No one listens any more, so no signal will come.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Tells of the first signal, and ends the process at the second.
async fn attend(mut heard: Heard, tell: &watch::Sender<Option<&'static str>>, service: &Handle, grace: Duration) {
    let name = heard.next().await;
    tracing::info!(signal = name, "shutting down");
    tell.send_replace(Some(name));
    let echo = Instant::now() + ECHO;
    while timeout_at(echo, heard.next()).await.is_ok() {}
    tracing::info!("a second signal exits at once");
    tokio::select! {
        name = heard.next() => {
            tracing::warn!(signal = name, "exiting at once; what is in hand is delivered again");
            std::process::exit(130);
        }
        () = silence(service, grace) => {
            tracing::error!(
                "handlers block all threads of the service and cannot be dropped; exiting: what is in hand is delivered again when \
                 its lease ends. Blocking work belongs in `tokio::task::spawn_blocking`"
            );
            std::process::exit(1);
        }
    }
}

/// Waits until the grace period is over and the service shows no sign of life.
async fn silence(service: &Handle, grace: Duration) {
    sleep(grace).await;
    while timeout(SILENCE, service.spawn(async {})).await.is_ok() {
        sleep(LOOK).await;
    }
}

/// SIGTERM and SIGINT.
struct Heard {
    terminate: Signal,
    interrupt: Signal,
}

impl Heard {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
