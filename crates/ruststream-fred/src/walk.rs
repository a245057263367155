//! The dead letters of one source, for the command `dead-letters` of a service.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use ruststream::message::header;
use ruststream::transport::{self, DeadLetters, ErrorKind, ReplayAttempts, TransportError};

use crate::connection::RedisConnection;
use crate::dead_letters::{self, DeadMessage, Holder};
use crate::hub::Hub;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, TransportError>> + Send + 'a>>;

/// Up to the last letter that is there at the beginning, so that one which dies again meanwhile is not met twice.
pub(crate) struct Walk {
    hub: Arc<Hub>,
    name: String,
    place: String,
    at: At,
}

enum At {
    /// There is none, or no more.
    End,
    Stream {
        /// What a page begins behind, as XRANGE has it.
        first: String,
        last: String,
    },
    List {
        /// The page with the places of its letters.
        page: Vec<(String, Bytes)>,
        /// How many were shown, and how many of them are still there: the others moved up.
        shown: usize,
        kept: usize,
        left: usize,
    },
}

impl Walk {
    pub(crate) async fn open(connection: &RedisConnection, name: &str) -> Result<Self, TransportError> {
        let hub = Arc::clone(connection.hub());
        let letters = dead_letters::DeadLetters::new(&hub);
        let place = letters.place(name)?;
        let at = match letters.holder(&place).await? {
            Holder::Nothing => At::End,
            Holder::Stream => match letters.newest(&place).await? {
                Some(last) => At::Stream {
                    first: "-".to_owned(),
                    last,
                },
                None => At::End,
            },
            Holder::List => At::List {
                page: Vec::new(),
                shown: 0,
                kept: 0,
                left: letters.length(&place).await?,
            },
        };
        Ok(Self {
            hub,
            name: name.to_owned(),
            place,
            at,
        })
    }

    async fn page(&mut self, most: usize) -> Result<Vec<DeadMessage>, TransportError> {
        let letters = dead_letters::DeadLetters::new(&self.hub);
        match &mut self.at {
            At::End => Ok(Vec::new()),
            At::Stream { first, last } => {
                let page = letters.entries(&self.place, first, last, most).await?;
                match page.last() {
                    Some(letter) => *first = format!("({}", letter.id),
                    None => self.at = At::End,
                }
                Ok(page)
            }
            At::List {
                page,
                shown,
                kept,
                left,
            } => {
                let values = letters.values(&self.place, *kept, most.min(*left)).await?;
                *page = values
                    .into_iter()
                    .enumerate()
                    .map(|(number, value)| ((*shown + number).to_string(), value))
                    .collect();
                *shown += page.len();
                *kept += page.len();
                *left -= page.len().min(*left);
                Ok(page
                    .iter()
                    .map(|(id, value)| DeadMessage::of_value(id.clone(), value))
                    .collect())
            }
        }
    }

    /// Does it with each letter of these ids, and counts.
    async fn each(&mut self, ids: &[String], what: What) -> Result<u64, TransportError> {
        let letters = dead_letters::DeadLetters::new(&self.hub);
        let mut count = 0;
        match &mut self.at {
            At::End => {}
            At::Stream { .. } => {
                for id in ids {
                    count += match what {
                        What::Purge => u64::from(letters.delete(&self.place, id).await?),
                        What::Replay { .. } => {
                            letters.move_entries(&self.name, &self.place, id, id).await?.len() as u64
                        }
                    };
                }
            }
            At::List { page, kept, .. } => {
                for (id, value) in page.extract_if(.., |(id, _)| ids.contains(id)) {
                    let gone = match what {
                        What::Purge => letters.remove(&self.place, &value).await?,
                        What::Replay { kept } => {
                            let made = if kept {
                                DeadMessage::of_value(id, &value).attempts
                            } else {
                                0
                            };
                            letters.replay_item(&self.name, &self.place, &value, made).await?
                        }
                    };
                    *kept -= 1;
                    count += gone;
                }
            }
        }
        Ok(count)
    }
}

#[derive(Clone, Copy)]
enum What {
    Purge,
    Replay { kept: bool },
}

impl DeadLetters for Walk {
    fn next(&mut self, most: usize) -> BoxFuture<'_, Vec<transport::DeadMessage>> {
        Box::pin(async move { Ok(self.page(most).await?.into_iter().map(letter).collect()) })
    }

    fn replay<'a>(&'a mut self, ids: &'a [String], attempts: ReplayAttempts) -> BoxFuture<'a, u64> {
        Box::pin(async move {
            let kept = attempts == ReplayAttempts::Kept;
            if kept && matches!(self.at, At::Stream { .. }) {
                return Err(TransportError::new(
                    ErrorKind::Invalid,
                    format!(
                        "`{}` is a stream, whose server counts anew for what is put back: leave out --keep-attempts",
                        self.name
                    ),
                ));
            }
            self.each(ids, What::Replay { kept }).await
        })
    }

    fn purge<'a>(&'a mut self, ids: &'a [String]) -> BoxFuture<'a, u64> {
        Box::pin(self.each(ids, What::Purge))
    }
}

fn letter(dead: DeadMessage) -> transport::DeadMessage {
    let mut letter = transport::DeadMessage::new(dead.id, dead.payload);
    letter.reason = dead.reason;
    letter.error = dead.error;
    letter.attempts = dead.attempts;
    letter.source = dead.source;
    letter.dead_at = dead.dead_at;
    letter.key = dead.headers.get(header::KEY).map(Bytes::copy_from_slice);
    letter.headers = dead.headers;
    letter
}
