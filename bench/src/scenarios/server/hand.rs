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

/// So many tasks lock `rows` rows each, handle and delete them and commit, until none is left.
pub(super) async fn drain_locked<D: Database>(trial: Trial<D>, tasks: usize, rows: usize) -> Result<(), Failed> {
    let place = trial.transport().place().await?;
    place.fill(trial.messages(), &work::body()).await?;
    let mut connections = Vec::with_capacity(tasks);
    for _ in 0..tasks {
        connections.push(place.connect().await?);
    }
    trial
        .timed(async {
            let mut running = JoinSet::new();
            for mut connection in connections {
                let tally = trial.tally();
                running.spawn(async move {
                    loop {
                        let locked = <D::Place as Place>::begin_locked(&mut connection, rows).await?;
                        let mut ids = Vec::with_capacity(locked.len());
                        for (id, payload) in locked {
                            work::handle(work::decoded(&payload)?);
                            ids.push(id);
                        }
                        match <D::Place as Place>::end_locked(&mut connection, &ids).await {
                            // Undone by the server, and in another's turn or this one's again.
                            Err(error) if is_deadlock(&*error) => continue,
                            ended => ended?,
                        }
                        if ids.is_empty() {
                            return Ok::<(), Failed>(());
                        }
                        for _ in ids {
                            tally.one();
                        }
                    }
                });
            }
            while let Some(ended) = running.join_next().await {
                ended??;
            }
            Ok(())
        })
        .await?;
    trial.expect("messages left", place.stored(BY_HAND, QUEUE).await?, 0)?;
    place.remove().await
}

/// Two transactions waited for each other, and the server ended one of them.
fn is_deadlock(error: &(dyn std::error::Error + 'static)) -> bool {
    let database = error
        .downcast_ref::<sqlx::Error>()
        .and_then(sqlx::Error::as_database_error);
    database.is_some_and(|error| matches!(error.code().as_deref(), Some("40001" | "40P01")))
}

/// One task claims one row, takes its lock by name, handles and deletes it and gives the lock back, until none is left.
pub(super) async fn drain_by_name<D: Database>(trial: Trial<D>) -> Result<(), Failed> {
    let place = trial.transport().place().await?;
    place.fill(trial.messages(), &work::body()).await?;
    let mut connection = place.connect().await?;
    trial
        .timed(async {
            for token in 1.. {
                let rows = <D::Place as Place>::claim(&mut connection, 1, token).await?;
                let Some((id, payload)) = rows.into_iter().next() else {
                    break;
                };
                let name = format!("{QUEUE}/{id}");
                <D::Place as Place>::lock_name(&mut connection, &name).await?;
                work::handle(work::decoded(&payload)?);
                trial.tally().one();
                <D::Place as Place>::delete(&mut connection, &[id], token).await?;
                <D::Place as Place>::unlock_name(&mut connection, &name).await?;
            }
            Ok(())
        })
        .await?;
    trial.expect("messages left", place.stored(BY_HAND, QUEUE).await?, 0)?;
    place.remove().await
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
