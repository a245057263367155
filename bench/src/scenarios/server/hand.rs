//! What one writes by hand: a claim under a lease, a delete.

use tokio::task::JoinSet;

use super::{BY_HAND, Database, Place, QUEUE, REPLIES};
use crate::scenarios::work;
use crate::suite::{Failed, Tally, Trial};

/// So many tasks claim `chunk` rows each, handle and delete them, until none is left; with `replies`, each message is answered
/// before its row is deleted.
pub(super) async fn drain<D: Database>(
    trial: Trial<D>,
    tasks: usize,
    chunk: usize,
    replies: bool,
) -> Result<(), Failed> {
    let place = trial.transport().place().await?;
    place.fill(trial.messages(), &work::body()).await?;
    let mut connections = Vec::with_capacity(tasks);
    for _ in 0..tasks {
        connections.push(place.connect().await?);
    }
    trial
        .timed(async {
            let mut running = JoinSet::new();
            for (first_token, connection) in (1..).zip(connections) {
                running.spawn(claimer::<D::Place>(
                    connection,
                    first_token,
                    tasks,
                    chunk,
                    replies,
                    trial.tally(),
                ));
            }
            while let Some(ended) = running.join_next().await {
                ended??;
            }
            Ok(())
        })
        .await?;
    trial.expect("messages left", place.stored(BY_HAND, QUEUE).await?, 0)?;
    let wanted = if replies { trial.messages() } else { 0 };
    trial.expect("replies", place.stored(BY_HAND, REPLIES).await?, wanted)?;
    place.remove().await
}

async fn claimer<P: Place>(
    mut connection: P::Connection,
    mut token: i64,
    tasks: usize,
    chunk: usize,
    replies: bool,
    tally: Tally,
) -> Result<(), Failed> {
    loop {
        // The tokens of the tasks never meet.
        token += i64::try_from(tasks)?;
        let rows = P::claim(&mut connection, chunk, token).await?;
        if rows.is_empty() {
            return Ok(());
        }
        let mut ids = Vec::with_capacity(rows.len());
        let mut receipts = Vec::with_capacity(rows.len());
        for (id, payload) in rows {
            receipts.push(work::handle(work::decoded(&payload)?));
            tally.one();
            ids.push(id);
        }
        if replies {
            P::insert(&mut connection, REPLIES, receipts.iter().map(work::encoded).collect()).await?;
        }
        P::delete(&mut connection, &ids, token).await?;
    }
}

/// So many tasks publish their part of the messages, `chunk` by one insert.
pub(super) async fn publish<D: Database>(trial: Trial<D>, tasks: usize, chunk: usize) -> Result<(), Failed> {
    let place = trial.transport().place().await?;
    place.fill(0, &[]).await?;
    let mut connections = Vec::with_capacity(tasks);
    for _ in 0..tasks {
        connections.push(place.connect().await?);
    }
    let inserts = trial.messages() / (tasks * chunk) as u64;
    trial
        .timed(async {
            let mut running = JoinSet::new();
            for mut connection in connections {
                let tally = trial.tally();
                running.spawn(async move {
                    let order = work::noted_order();
                    for _ in 0..inserts {
                        let messages = (0..chunk).map(|_| work::encoded(&order)).collect();
                        <D::Place as Place>::insert(&mut connection, QUEUE, messages).await?;
                        tally.many(chunk as u64);
                    }
                    Ok::<(), Failed>(())
                });
            }
            while let Some(ended) = running.join_next().await {
                ended??;
            }
            Ok(())
        })
        .await?;
    trial.expect("messages stored", place.stored(BY_HAND, QUEUE).await?, trial.messages())?;
    place.remove().await
}
