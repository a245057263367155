//! What an app does besides handling messages: when it starts and when it ends.

use std::error::Error;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

use tokio::time::{Duration, timeout};

use super::AppHandle;
use super::error::AppError;
use crate::handler::panic_text;

/// What a hook of an app answers: every error becomes one by `?`.
pub type HookResult = Result<(), Box<dyn Error + Send + Sync>>;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Hook<A> = Box<dyn FnOnce(A) -> BoxFuture<HookResult> + Send>;

/// The hooks of an app, each list run in the order of its making.
#[derive(Default)]
pub(super) struct Hooks {
    pub(super) on_startup: Vec<Hook<()>>,
    pub(super) after_startup: Vec<Hook<AppHandle>>,
    pub(super) on_shutdown: Vec<Hook<AppHandle>>,
    pub(super) after_shutdown: Vec<Hook<()>>,
}

pub(super) fn hook<A, F, Fut>(run: F) -> Hook<A>
where
    F: FnOnce(A) -> Fut + Send + 'static,
    Fut: Future<Output = HookResult> + Send + 'static,
{
    Box::new(move |argument| Box::pin(run(argument)))
}

/// Runs hooks one after the other; the first failure ends it. A panic is a failure, so that it keeps no app from draining.
pub(super) async fn run<A: Clone>(name: &'static str, hooks: Vec<Hook<A>>, argument: A) -> Result<(), AppError> {
    for hook in hooks {
        let argument = argument.clone();
        let mut running = Box::pin(async move { hook(argument).await });
        let ended = poll_fn(|cx| {
            catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx)))
                .unwrap_or_else(|panic| Poll::Ready(Err(format!("it panicked: {}", panic_text(panic)).into())))
        });
        ended.await.map_err(|cause| AppError::hook(name, cause))?;
    }
    Ok(())
}

/// As [`run`], but no longer than the grace period: a hook that hangs does not keep the app from ending.
pub(super) async fn run_within<A: Clone + Send + 'static>(
    grace: Duration,
    name: &'static str,
    hooks: Vec<Hook<A>>,
    argument: A,
) -> Result<(), AppError> {
    timeout(grace, run(name, hooks, argument)).await.unwrap_or_else(|_| {
        Err(AppError::hook(
            name,
            format!("it did not end within the grace period of {grace:?}").into(),
        ))
    })
}
