//! A warehouse, put together from routers: functions that mount handlers. What a router need not know is decided where it is called:
//! the prefix of its names, its part of the state, the layers around it.

#![allow(clippy::print_stdout, reason = "talking to the terminal is what the example is for")]

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ruststream::app::{AppBuilder, BrokerScope};
use ruststream::handler::{Call, Layer, Layers, Outcome, Single};
use ruststream::layer::OnlyIf;
use ruststream::prelude::*;
use ruststream::transport::Broker;

/// What happened, a line each.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the app, of which the router of the shelves sees no more than the diary.
struct Company {
    diary: Diary,
}

/// A layer of one's own: it notes each call before the handler, and its outcome after.
struct Noted(&'static str, Diary);

impl Layer for Noted {
    async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
        let Self(name, diary) = self;
        diary.lines().push(format!("{name} sees {}", call.source()));
        let outcome = next.call(call).await;
        let end = match &outcome {
            Outcome::Said(HandlerOutcome::Ack) => "it was handled",
            Outcome::Failed(failure) => failure.text(),
            _ => "it was not handled",
        };
        diary.lines().push(format!("{name} is told: {end}"));
        outcome
    }
}

#[subscriber("filled")]
async fn fill(article: String, State(diary): State<Diary>) {
    diary.lines().push(format!("{article} is on its shelf"));
}

#[subscriber("emptied")]
async fn order_more(_article: String) -> Result<(), &'static str> {
    Err("the supplier is closed")
}

/// A router for any broker, and inside any layers.
fn shelves<B: Broker, L: Layers>(scope: &mut BrokerScope<'_, B, Diary, L>) {
    scope.include(fill);
    scope.include(order_more).retry(Retry::never());
}

/// A router that calls another: with a part of its state, behind a prefix, inside a layer.
fn warehouse<B: Broker, L: Layers>(scope: &mut BrokerScope<'_, B, Company, L>, diary: Diary) {
    scope.layer(Noted("inner", diary), |scope| {
        scope.with_state(
            |company| company.diary.clone(),
            |scope| scope.prefix("shelves.", shelves),
        );
    });
}

/// Names read from the outside in: `berlin.` + `shelves.` + `filled`. So do layers: the outer sees a call first and its end last,
/// and what a layer does not pass on, nothing inside it sees.
fn company(broker: MemoryBroker, diary: Diary) -> AppBuilder<Company> {
    let state = Company { diary: diary.clone() };
    RustStream::new(AppInfo::new("company", env!("CARGO_PKG_VERSION")))
        .state(state)
        .with_broker(broker, |broker| {
            broker.layer(Noted("outer", diary.clone()), |broker| {
                broker.layer(OnlyIf::header("real", "yes"), |broker| {
                    broker.prefix("berlin.", |broker| warehouse(broker, diary));
                });
            });
        })
}

#[ruststream::app]
fn app() -> RustStream {
    let (broker, diary) = (MemoryBroker::new(), Diary::default());
    let company = company(broker.clone(), diary.clone());
    company.after_startup(async move |app| {
        for (event, real) in [("filled", "yes"), ("filled", "no"), ("emptied", "yes")] {
            let name = format!("berlin.shelves.{event}");
            app.publisher()
                .publish(name.clone(), "screw")
                .header("real", real)
                .await?;
            broker.idle(&name).await;
        }
        println!("{}", diary.lines().join("\n"));
        app.stop();
        Ok(())
    })
}
