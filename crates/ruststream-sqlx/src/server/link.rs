//! One connection to a server: made when needed, under deadlines, and made again when it was lost.

use std::sync::Arc;
use std::time::Duration;

use ruststream::transport::ErrorKind;
use tokio::time::{Instant, sleep, timeout};

use super::dialect::{Answers, Connects, Dialect, PrepareError, Request};
use super::{Base, Ping};
use crate::engine::Counters;
use crate::error::{Failure, Trouble};

/// How often a statement is tried again that lost against others.
const ATTEMPTS: u32 = 12;

/// A connection that was not used for so long may have been cut by something between: it is tried out first.
const IDLE: Duration = Duration::from_secs(5);

pub(crate) struct Link<D: Connects> {
    base: Arc<Base<D>>,
    open: Option<Open<D::Connection>>,
    limit: Duration,
}

struct Open<C> {
    connection: C,
    used: Instant,
}

impl<D: Dialect> Link<D> {
    pub(crate) fn new(base: Arc<Base<D>>) -> Self {
        let limit = base.settings.statement_timeout;
        Self {
            base,
            open: None,
            limit,
        }
    }

    /// A link whose statements may take longer, since people wait for them.
    pub(super) fn patient(base: Arc<Base<D>>) -> Self {
        let mut link = Self::new(base);
        link.limit = link.limit.max(Duration::from_mins(1));
        link
    }

    /// Makes the tables ready.
    pub(super) async fn prepare(&mut self) -> Result<(), Failure> {
        let mut attempt = 0;
        loop {
            self.connect().await?;
            let Some(open) = &mut self.open else {
                return Err(self.closed());
            };
            let Base { dialect, settings, .. } = &*self.base;
            // Others that start at the same time come first: each gets its turn.
            let limit = self.limit * 3;
            let preparing = dialect.prepare(&mut open.connection, settings.migrate);
            match timeout(limit, preparing).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(PrepareError::Failed(failure))) => return Err(failure),
                Ok(Err(PrepareError::Sqlx(error))) => match self.judge(error) {
                    Verdict::Again if attempt < ATTEMPTS => attempt += 1,
                    Verdict::Again => return Err(self.contended()),
                    Verdict::Failed(trouble) => return Err(trouble.into_failure()),
                },
                Err(_) => return Err(self.too_slow(limit)),
            }
            sleep(pause(attempt)).await;
        }
    }

    /// Asks something of the server.
    pub(crate) async fn run<R: Request>(&mut self, request: &R) -> Result<R::Answer, Trouble>
    where
        D: Answers<R>,
    {
        self.look_alive().await?;
        let mut attempt = 0;
        loop {
            self.connect().await.map_err(Trouble::Lost)?;
            let Some(open) = &mut self.open else {
                return Err(Trouble::Lost(self.closed()));
            };
            Counters::count(&self.base.counters.transactions);
            let answering = self.base.dialect.answer(&mut open.connection, request);
            match timeout(self.limit, answering).await {
                Ok(Ok(answer)) => {
                    open.used = Instant::now();
                    return Ok(answer);
                }
                Ok(Err(error)) => match self.judge(error) {
                    Verdict::Again if attempt < ATTEMPTS => {
                        Counters::count(&self.base.counters.busy_retries);
                        sleep(pause(attempt)).await;
                        attempt += 1;
                    }
                    Verdict::Again => return Err(Trouble::Contended(self.contended())),
                    Verdict::Failed(trouble) => return Err(trouble),
                },
                Err(_) => return Err(Trouble::Lost(self.too_slow(self.limit))),
            }
        }
    }

    /// Lets go of a connection that was idle for long and does not answer: the next one is made instead.
    async fn look_alive(&mut self) -> Result<(), Trouble> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.used.elapsed() < IDLE {
            return Ok(());
        }
        let pinging = Answers::<Ping>::answer(&self.base.dialect, &mut open.connection, &Ping);
        if !matches!(timeout(self.base.settings.connect_timeout, pinging).await, Ok(Ok(()))) {
            self.open = None;
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        if self.open.is_some() {
            return Ok(());
        }
        let limit = self.base.settings.connect_timeout;
        let connection = match timeout(limit, self.base.dialect.connect()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                return Err(match self.judge(error) {
                    Verdict::Again => self.contended(),
                    Verdict::Failed(trouble) => trouble.into_failure(),
                });
            }
            Err(_) => {
                return Err(Failure::lost(
                    ErrorKind::Timeout,
                    format!("{} did not answer within {limit:?}", self.base.settings.label),
                ));
            }
        };
        Counters::count(&self.base.counters.opened);
        self.open = Some(Open {
            connection,
            used: Instant::now(),
        });
        Ok(())
    }

    pub(crate) async fn close(&mut self) {
        if let Some(open) = self.open.take() {
            let _ = timeout(Duration::from_secs(1), D::close(open.connection)).await;
        }
    }

    fn judge(&mut self, error: sqlx::Error) -> Verdict {
        let judged = self.base.dialect.judge(&error);
        if judged.again {
            return Verdict::Again;
        }
        if judged.lost {
            self.open = None;
        }
        let text = format!("{}: {}", self.base.settings.label, judged.text);
        Verdict::Failed(if judged.lost {
            Trouble::Lost(Failure::lost(judged.kind, text).with_cause(error))
        } else {
            Trouble::Refused(Failure::new(judged.kind, text).with_cause(error))
        })
    }

    /// Its end is not waited for: it may never come.
    fn too_slow(&mut self, limit: Duration) -> Failure {
        self.open = None;
        let label = &self.base.settings.label;
        Failure::lost(ErrorKind::Timeout, format!("{label} did not answer within {limit:?}"))
    }

    fn contended(&self) -> Failure {
        let label = &self.base.settings.label;
        Failure::new(
            ErrorKind::Busy,
            format!("{label}: a statement lost against others {ATTEMPTS} times in a row; look for long transactions"),
        )
    }

    fn closed(&self) -> Failure {
        Failure::closed(&self.base.settings.label)
    }
}

enum Verdict {
    Again,
    Failed(Trouble),
}

/// How long to wait before the next attempt: short at first, then up to 32 ms, never in step with others.
fn pause(attempt: u32) -> Duration {
    Duration::from_micros(fastrand::u64(200..=1_000_u64 << attempt.min(5)))
}
