//! Reading a stream: where each delivery in hand stands in it, and what has to be handed out once more.
//!
//! A stream keeps what was acked, and gives nothing back: its acks only let it send more. So the place to go on from is counted
//! here, and a message that is released or tried again is handed out again from here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::{SystemTime, UNIX_EPOCH};

use lapin::types::AMQPValue;
use tokio::sync::Notify;

use crate::book::Book;
use crate::delivery::{Message, QueueDelivery};
use crate::position::Position;
use crate::queue::text;

/// Where the reading of a [stream](crate::Queue::stream) begins, while no position is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StreamOffset {
    /// With the oldest message that the stream still has.
    #[default]
    First,
    /// With the last part that was written: some of the newest messages.
    Last,
    /// With what is published after the subscription opened.
    Next,
    /// With the message of this [offset](crate::MessageFields::stream_offset), or the first behind it that is left.
    At(u64),
    /// With what was stored at this time or later, by the clock of the server; some messages before it may come too.
    Since(SystemTime),
}

impl StreamOffset {
    /// As the argument of a consumer has it: <https://www.rabbitmq.com/docs/streams#consuming>.
    pub(crate) fn argument(self) -> AMQPValue {
        match self {
            Self::First => text("first"),
            Self::Last => text("last"),
            Self::Next => text("next"),
            Self::At(offset) => i64::try_from(offset).unwrap_or(i64::MAX).into(),
            Self::Since(time) => {
                let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
                AMQPValue::Timestamp(since.as_secs())
            }
        }
    }
}

/// What a session knows of its stream.
pub(crate) struct Reading {
    state: Mutex<State>,
    /// The place to go on from has moved.
    pub(crate) moved: Arc<Notify>,
    /// Where that place is kept; `None` where it is not.
    pub(crate) position: Option<tokio::sync::Mutex<Position>>,
    /// Messages before this offset are not for this reader: the server sends whole parts.
    from: Option<u64>,
}

#[derive(Default)]
struct State {
    /// The tag of the first in `in_hand`.
    first: u64,
    in_hand: VecDeque<InHand>,
    /// Behind the last that was settled with all before it.
    next: Option<u64>,
    returned: VecDeque<Box<Message>>,
    waker: Option<Waker>,
}

#[derive(Clone, Copy)]
struct InHand {
    offset: u64,
    attempt: u32,
}

impl Reading {
    pub(crate) fn new(from: Option<u64>, position: Option<Position>) -> Self {
        Self {
            state: Mutex::new(State {
                first: 1,
                ..State::default()
            }),
            moved: Arc::default(),
            position: position.map(tokio::sync::Mutex::new),
            from,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the server is to begin.
    pub(crate) fn begins_at(&self, unless_kept: StreamOffset) -> StreamOffset {
        self.from.map_or(unless_kept, StreamOffset::At)
    }

    /// Notes a delivery; in the order of their tags. False where it is not for this reader.
    pub(crate) fn deliver(&self, message: &Message) -> bool {
        let offset = message.fields.stream_offset().unwrap_or_default();
        let attempt = message.attempt;
        self.state().in_hand.push_back(InHand { offset, attempt });
        self.from.is_none_or(|from| offset >= from)
    }

    /// Takes from the book what has finished with all before it.
    pub(crate) fn settled(&self, book: &Book) {
        let mut state = self.state();
        let before = state.next;
        while state.first < book.first()
            && let Some(settled) = state.in_hand.pop_front()
        {
            state.first += 1;
            state.next = Some(settled.offset + 1);
        }
        if state.next != before {
            self.moved.notify_one();
        }
    }

    /// Where a reader goes on that takes over now; `None` before the first delivery.
    pub(crate) fn place(&self) -> Option<u64> {
        let state = self.state();
        let first = state.in_hand.front().map(|first| first.offset);
        first.max(state.next).max(self.from)
    }

    /// Hands a message out again.
    pub(crate) fn give_back(&self, messages: impl IntoIterator<Item = Box<Message>>) {
        let mut state = self.state();
        state.returned.extend(messages);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes at most so many of those that are handed out again; wakes when there are more.
    pub(crate) fn poll_returned(&self, context: &Context<'_>, most: usize, into: &mut Vec<QueueDelivery>) {
        let mut state = self.state();
        if state.returned.is_empty() {
            if !state
                .waker
                .as_ref()
                .is_some_and(|known| known.will_wake(context.waker()))
            {
                state.waker = Some(context.waker().clone());
            }
            return;
        }
        let count = most.min(state.returned.len());
        let first = into.len();
        let returned = state.returned.drain(..count);
        into.extend(returned.map(|message| QueueDelivery { message }));
        for QueueDelivery { message } in &into[first..] {
            let place = message.fields.tag.checked_sub(state.first).map(|place| place as usize);
            if let Some(known) = place.and_then(|place| state.in_hand.get_mut(place)) {
                known.attempt = message.attempt;
            }
        }
    }

    /// What is left of a session that is lost.
    pub(crate) fn left(&self, book: &Book) -> Left {
        let mut left = Left {
            place: self.place(),
            ..Left::default()
        };
        let state = self.state();
        for (place, known) in state.in_hand.iter().enumerate() {
            if book.is_open(state.first + place as u64) {
                left.attempts.insert(known.offset, known.attempt);
            } else {
                left.finished.insert(known.offset);
            }
        }
        left
    }
}

/// What a lost session leaves to the next.
#[derive(Default)]
pub(crate) struct Left {
    /// Where the next one goes on.
    pub(crate) place: Option<u64>,
    /// The attempts of those that were in hand, by offset.
    attempts: HashMap<u64, u32>,
    /// Those that had finished before others of a lower offset had.
    finished: HashSet<u64>,
}

impl Left {
    /// Counts the attempts of a message that comes again; false where it had finished already.
    pub(crate) fn comes_again(&mut self, message: &mut Message) -> bool {
        if self.attempts.is_empty() && self.finished.is_empty() {
            return true;
        }
        let offset = message.fields.stream_offset().unwrap_or_default();
        if let Some(made) = self.attempts.remove(&offset) {
            message.again(made, true);
        }
        !self.finished.remove(&offset)
    }
}
