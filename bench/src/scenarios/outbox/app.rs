//! The app in its three forms.

use ruststream::app::Running;
use ruststream::prelude::*;
use ruststream_fred::RedisStream;
use ruststream_sqlx::{Outbox, Tracked};
use sqlx::Postgres;
use sqlx::postgres::PgPool;
use tokio::task::JoinSet;

use super::{OverRedis, Place, hand};
use crate::scenarios::work::{self, NotedOrder, Order};
use crate::suite::{Failed, Tally, Trial};

/// Which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    None,
    Hand,
    Crate,
}

/// What the handlers share.
#[derive(Clone)]
struct Shared {
    tally: Tally,
    pool: PgPool,
}

/// Handles a message as every app does.
#[subscriber("orders")]
async fn plain(order: Order, State(shared): State<Shared>) {
    work::handle(order);
    shared.tally.one();
}

#[derive(Deserialize)]
struct Recorded {
    record: i64,
}

/// Fetches the record of a message, handles it, and marks the record.
#[subscriber("orders")]
async fn by_hand(order: Order, recorded: Headers<Recorded>, State(shared): State<Shared>) -> Result<(), sqlx::Error> {
    let id = recorded.0.record;
    if !hand::fetch(&shared.pool, id).await? {
        return Ok(());
    }
    work::handle(order);
    if hand::mark(&shared.pool, id).await? {
        shared.tally.one();
    }
    Ok(())
}

/// An app that publishes, and handles with so many workers where there are any.
async fn start(
    place: &Place,
    tracked: &Tracked<Postgres>,
    form: Form,
    workers: usize,
    tally: &Tally,
) -> Result<Running, Failed> {
    let shared = Shared {
        tally: tally.clone(),
        pool: place.pool.clone(),
    };
    let source = || RedisStream::new(place.stream);
    let app = RustStream::new(AppInfo::new("bench", "0"))
        .state(shared)
        .with_broker(place.broker(), |broker| {
            if form == Form::Crate {
                broker.publish_layer(tracked.record());
            }
            match form {
                _ if workers == 0 => {}
                Form::None => {
                    broker.include(plain).source(source()).workers(workers);
                }
                Form::Hand => {
                    broker.include(by_hand).source(source()).workers(workers);
                }
                Form::Crate => broker.layer(tracked.mark(), |broker| {
                    broker.include(plain).source(source()).workers(workers);
                }),
            }
        });
    // Sending again is a part of the app, though nothing is left over in time.
    let app = if form == Form::Crate {
        app.background(tracked.resend())
    } else {
        app
    };
    Ok(app.start().await?)
}

/// Publishes all messages of a trial from so many tasks, each told to `told`.
async fn publish(
    place: &Place,
    publisher: Publisher,
    form: Form,
    tasks: usize,
    messages: u64,
    told: Option<&Tally>,
) -> Result<(), Failed> {
    let mut publishing = JoinSet::new();
    for _ in 0..tasks {
        let (publisher, pool, stream) = (publisher.clone(), place.pool.clone(), place.stream);
        let told = told.cloned();
        publishing.spawn(async move {
            let order: NotedOrder = work::noted_order();
            for _ in 0..messages / tasks as u64 {
                if form == Form::Hand {
                    hand::publish(&pool, &publisher, stream, &order).await?;
                } else {
                    publisher.publish(stream, &order).await?;
                }
                if let Some(told) = &told {
                    told.one();
                }
            }
            Ok::<(), Failed>(())
        });
    }
    while let Some(ended) = publishing.join_next().await {
        ended??;
    }
    Ok(())
}

/// A place with an outbox that tracks its stream, or another name.
async fn prepared(trial: &Trial<OverRedis>, tracks: bool) -> Result<(Place, Tracked<Postgres>), Failed> {
    let place = trial.transport().place().await?;
    let name = if tracks { place.stream } else { "another" };
    let tracked = Outbox::new(place.pool.clone()).tracked([name]);
    tracked.prepare().await?;
    Ok((place, tracked))
}

/// The records that are there, and how many are to be handled still.
async fn checked(trial: &Trial<OverRedis>, place: Place, form: Form, wanted: u64, open: u64) -> Result<(), Failed> {
    let (table, left) = match form {
        Form::Hand => ("records", "handled_at IS NULL"),
        Form::Crate | Form::None => ("ruststream_tracked", "state <> 2"),
    };
    trial.expect("records", place.count(table, "true").await?, wanted)?;
    trial.expect("records to be handled", place.count(table, left).await?, open)?;
    place.remove().await
}

/// Publishes from so many tasks; no one handles.
pub(super) async fn publishes(trial: Trial<OverRedis>, form: Form, tasks: usize) -> Result<(), Failed> {
    let (place, tracked) = prepared(&trial, true).await?;
    let tally = trial.tally();
    let running = start(&place, &tracked, form, 0, &tally).await?;
    trial
        .timed(publish(
            &place,
            running.publisher(),
            form,
            tasks,
            trial.messages(),
            Some(&tally),
        ))
        .await?;
    running.shutdown().await?;
    let records = if form == Form::None { 0 } else { trial.messages() };
    checked(&trial, place, form, records, records).await
}

/// Handles what was recorded and published before.
pub(super) async fn delivers(trial: Trial<OverRedis>, form: Form, workers: usize) -> Result<(), Failed> {
    let (place, tracked) = prepared(&trial, true).await?;
    let tally = trial.tally();
    let publishing = start(&place, &tracked, form, 0, &tally).await?;
    publish(&place, publishing.publisher(), form, 8, trial.messages(), None).await?;
    publishing.shutdown().await?;
    trial
        .timed(async {
            let running = start(&place, &tracked, form, workers, &tally).await?;
            tally.all().await;
            Ok(running.shutdown().await?)
        })
        .await?;
    let records = if form == Form::None { 0 } else { trial.messages() };
    checked(&trial, place, form, records, 0).await
}

/// Publishes from as many tasks as there are workers, which handle meanwhile; tracked or not.
pub(super) async fn round_trips(
    trial: Trial<OverRedis>,
    form: Form,
    workers: usize,
    tracks: bool,
) -> Result<(), Failed> {
    let (place, tracked) = prepared(&trial, tracks).await?;
    let tally = trial.tally();
    trial
        .timed(async {
            let running = start(&place, &tracked, form, workers, &tally).await?;
            publish(&place, running.publisher(), form, workers, trial.messages(), None).await?;
            tally.all().await;
            Ok(running.shutdown().await?)
        })
        .await?;
    let records = if form == Form::None || !tracks {
        0
    } else {
        trial.messages()
    };
    checked(&trial, place, form, records, 0).await
}
