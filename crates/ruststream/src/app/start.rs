//! Starting an app, and running it until it is told to stop.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::background::Services;
use super::broker::{How, Started};
use super::hooks::{self, Hooks};
use super::late::Late;
use super::running::Inner;
use super::signals::Signals;
use super::{AppError, AppHandle, Running, RustStream};

pub(super) async fn start(app: RustStream) -> Result<Running, AppError> {
    AppError::of_wiring(&app.problems())?;
    let RustStream {
        info,
        brokers,
        background,
        hooks,
        options,
    } = app;
    let Hooks {
        on_startup,
        after_startup,
        on_shutdown,
        after_shutdown,
    } = hooks;
    tracing::info!(app = info.name(), version = info.version(), "starting");
    hooks::run("on_startup", on_startup, ()).await?;

    let stop = CancellationToken::new();
    let how = How {
        stop: stop.clone(),
        grace: options.shutdown_grace,
        fail_fast: options.fail_fast,
        codec: options.codec,
    };
    // Side by side: an absent broker keeps no other waiting. Dropping the set on an error ends what has not begun.
    let mut starting = JoinSet::new();
    for (place, broker) in brokers.into_iter().enumerate() {
        let starts = broker.start(how.clone());
        starting.spawn(async move { (place, starts.await) });
    }
    let mut started: Vec<(usize, Started)> = Vec::new();
    while let Some(joined) = starting.join_next().await {
        let error = match joined {
            Ok((place, Ok(broker))) => {
                started.push((place, broker));
                continue;
            }
            Ok((_, Err(error))) => error,
            Err(error) => AppError::broker("a broker panicked while it was started", error),
        };
        starting.abort_all();
        for (_, broker) in started {
            drop(broker.subscriptions);
            broker.live.close().await;
        }
        return Err(error);
    }
    started.sort_by_key(|(place, _)| *place);
    tell_apart(&mut started);

    let mut tasks = JoinSet::new();
    let mut lives = Vec::new();
    let mut publishers = Vec::new();
    let mut subscriptions = Vec::new();
    for (
        place,
        Started {
            label,
            publisher,
            subscriptions: opened,
            live,
        },
    ) in started
    {
        publishers.push((label, publisher));
        lives.push(live);
        for (shared, runs) in opened {
            subscriptions.push((shared, place));
            tasks.spawn(runs);
        }
    }
    let handle = AppHandle {
        inner: Arc::new(Inner {
            stop,
            grace: options.shutdown_grace,
            publishers,
            subscriptions,
            services: Services::new(background),
            late: Late::new(info.name(), how, lives),
        }),
    };
    let hooks = Hooks {
        on_shutdown,
        after_shutdown,
        ..Hooks::default()
    };
    let services = handle.inner.services.start(&handle);
    let running = Running {
        handle,
        tasks,
        services,
        hooks,
    };
    if let Err(error) = hooks::run("after_startup", after_startup, running.handle()).await {
        running.shutdown().await?;
        return Err(error);
    }
    tracing::info!(app = info.name(), "running");
    Ok(running)
}

/// Numbers the brokers that bear the same label, such as two `MemoryBroker`s: `memory`, `memory #2`.
fn tell_apart(started: &mut [(usize, Started)]) {
    for place in (1..started.len()).rev() {
        let label = &started[place].1.label;
        let before = started[..place]
            .iter()
            .filter(|(_, other)| other.label == *label)
            .count();
        if before > 0 {
            let numbered = format!("{label} #{}", before + 1);
            started[place].1.label = numbered;
        }
    }
}

pub(super) async fn run(app: RustStream) -> Result<(), AppError> {
    let mut signals = Signals::listen(app.options.shutdown_grace)?;
    let running = tokio::select! {
        running = start(app) => running?,
        name = signals.first() => {
            tracing::info!(signal = name, "stopped before it had started");
            return Ok(());
        }
    };
    let handle = running.handle();
    let mut finished = std::pin::pin!(running.finished());
    tokio::select! {
        result = &mut finished => return result,
        _ = signals.first() => handle.stop(),
    }
    finished.await
}
