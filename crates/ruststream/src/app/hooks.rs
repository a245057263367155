//! What an app does besides handling messages: when it starts and when it ends.

use std::error::Error;
use std::pin::Pin;

use super::AppHandle;
use super::error::AppError;

type Cause = Box<dyn Error + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Hook<A> = Box<dyn FnOnce(A) -> BoxFuture<Result<(), Cause>> + Send>;

/// The hooks of an app, each list run in the order of its making.
#[derive(Default)]
pub(super) struct Hooks {
    pub(super) on_startup: Vec<Hook<()>>,
    pub(super) after_startup: Vec<Hook<AppHandle>>,
    pub(super) on_shutdown: Vec<Hook<AppHandle>>,
    pub(super) after_shutdown: Vec<Hook<()>>,
}

pub(super) fn hook<A, F, Fut, E>(run: F) -> Hook<A>
where
    F: FnOnce(A) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Cause>,
{
    Box::new(move |argument| {
        let running = run(argument);
        Box::pin(async move { running.await.map_err(Into::into) })
    })
}

/// Runs hooks one after the other; the first failure ends it.
pub(super) async fn run<A: Clone>(name: &'static str, hooks: Vec<Hook<A>>, argument: A) -> Result<(), AppError> {
    for hook in hooks {
        hook(argument.clone())
            .await
            .map_err(|cause| AppError::hook(name, cause))?;
    }
    Ok(())
}
