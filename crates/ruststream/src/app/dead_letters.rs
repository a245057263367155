//! What can be done with the dead letters of an app's sources, without running its handlers.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::broker::{How, Walk};
use super::{AppError, RustStream};
use crate::transport::{DeadLetters, DeadMessage, ReplayAttempts, TransportError};

/// How many letters are read at once, and put back at once where no rate is set.
const PAGE: usize = 100;

/// What is to be done, and with what.
pub(super) struct Job {
    /// One source, or all.
    pub(super) source: Option<String>,
    pub(super) filter: Filter,
    pub(super) action: Action,
}

/// Which letters; all where nothing is set.
#[derive(Default)]
pub(super) struct Filter {
    pub(super) ids: BTreeSet<String>,
    pub(super) reason: Option<String>,
    /// What the text of the error contains.
    pub(super) error: Option<String>,
    /// When they were given up at the latest.
    pub(super) before: Option<SystemTime>,
}

pub(super) enum Action {
    /// At most so many of each source.
    List {
        limit: u64,
    },
    Show,
    /// At most so many a second.
    Replay {
        attempts: ReplayAttempts,
        rate: Option<f64>,
    },
    Purge,
}

/// What is told meanwhile.
pub(super) enum Shown<'a> {
    Letter {
        source: &'a str,
        letter: &'a DeadMessage,
    },
    /// A source that keeps no letters.
    Unreadable {
        source: &'a str,
        reason: String,
    },
    /// A source is through: how many letters were shown or changed, of how many that were seen.
    Done {
        source: &'a str,
        count: u64,
        seen: u64,
        more: bool,
    },
}

impl Filter {
    fn takes(&self, letter: &DeadMessage) -> bool {
        (self.ids.is_empty() || self.ids.contains(&letter.id))
            && self.reason.as_ref().is_none_or(|reason| *reason == letter.reason)
            && self.error.as_ref().is_none_or(|error| letter.error.contains(error))
            && self.before.is_none_or(|before| letter.dead_at <= before)
    }
}

impl RustStream {
    /// Does it, and answers with how many letters.
    pub(super) async fn dead_letters(
        self,
        job: Job,
        shown: &mut (dyn FnMut(Shown<'_>) + Send),
    ) -> Result<u64, AppError> {
        AppError::of_wiring(&self.problems())?;
        let how = How {
            stop: CancellationToken::new(),
            grace: self.options.shutdown_grace,
            fail_fast: true,
            codec: self.options.codec,
        };
        let mut known = Vec::new();
        let mut total = 0;
        let mut met = false;
        for broker in self.brokers {
            let sources = broker.sources();
            let wanted = |name: &&String| job.source.as_ref().is_none_or(|source| source == *name);
            let wanted: Vec<String> = sources.iter().filter(wanted).cloned().collect();
            known.extend(sources);
            if wanted.is_empty() {
                continue;
            }
            met = true;
            let (walks, live) = broker.dead_letters(wanted, how.clone()).await?;
            let done = each(walks, &job, shown).await;
            live.close().await;
            total += done?;
        }
        match &job.source {
            Some(source) if !met => Err(AppError::failed(format!(
                "no subscription reads `{source}`; there are: {}",
                known.join(", ")
            ))),
            _ => Ok(total),
        }
    }
}

async fn each(walks: Vec<Walk>, job: &Job, shown: &mut (dyn FnMut(Shown<'_>) + Send)) -> Result<u64, AppError> {
    let mut total = 0;
    for Walk { source, letters, place } in walks {
        let Some(mut letters) = letters else {
            let reason = match place {
                Some(place) => format!("its dead letters go to `{place}`, where any subscription reads them"),
                None => "its broker keeps no dead letters that can be read".to_owned(),
            };
            shown(Shown::Unreadable {
                source: &source,
                reason,
            });
            continue;
        };
        let done = walk(&source, &mut *letters, job, shown).await;
        let closed = letters.close().await;
        total += done
            .and_then(|count| closed.map(|()| count))
            .map_err(|error| AppError::broker(format!("the dead letters of `{source}`"), error))?;
    }
    Ok(total)
}

async fn walk(
    source: &str,
    letters: &mut dyn DeadLetters,
    job: &Job,
    shown: &mut (dyn FnMut(Shown<'_>) + Send),
) -> Result<u64, TransportError> {
    let pace = Pace::of(&job.action);
    let (mut count, mut seen, mut more) = (0, 0, false);
    'walk: loop {
        let met = letters.next(PAGE).await?;
        if met.is_empty() {
            break;
        }
        seen += met.len() as u64;
        let chosen: Vec<&DeadMessage> = met.iter().filter(|letter| job.filter.takes(letter)).collect();
        match &job.action {
            Action::List { .. } | Action::Show => {
                for letter in chosen {
                    if matches!(job.action, Action::List { limit } if count == limit) {
                        more = true;
                        break 'walk;
                    }
                    shown(Shown::Letter { source, letter });
                    count += 1;
                }
            }
            Action::Replay { attempts, .. } => {
                for group in chosen.chunks(pace.group) {
                    let ids: Vec<String> = group.iter().map(|letter| letter.id.clone()).collect();
                    let replayed = letters.replay(&ids, *attempts).await?;
                    count += replayed;
                    if replayed > 0 && !pace.wait.is_zero() {
                        sleep(pace.wait).await;
                    }
                }
            }
            Action::Purge => {
                let ids: Vec<String> = chosen.iter().map(|letter| letter.id.clone()).collect();
                if !ids.is_empty() {
                    count += letters.purge(&ids).await?;
                }
            }
        }
    }
    shown(Shown::Done {
        source,
        count,
        seen,
        more,
    });
    Ok(count)
}

/// How many are put back together, and the wait after them: ten times a second, or less where the rate is lower.
struct Pace {
    group: usize,
    wait: Duration,
}

impl Pace {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "between 1 and the page"
    )]
    fn of(action: &Action) -> Self {
        let Action::Replay { rate: Some(rate), .. } = action else {
            return Self {
                group: PAGE,
                wait: Duration::ZERO,
            };
        };
        let group = (rate / 10.0).ceil().clamp(1.0, PAGE as f64) as usize;
        Self {
            group,
            wait: Duration::try_from_secs_f64(group as f64 / rate).unwrap_or(Duration::MAX),
        }
    }
}
