//! The book of a channel's delivery tags: which are in hand, which are acked, and what the server knows of it.

use std::collections::VecDeque;

/// The tags of one channel. The server numbers deliveries from 1 without gaps, and acks up to a tag in one frame: so what has
/// finished is told as one run as far as it is contiguous, and the rest waits a moment for the gaps to close.
#[derive(Debug)]
pub(crate) struct Book {
    /// The lowest tag that the book still has.
    first: u64,
    marks: VecDeque<Mark>,
    /// How many are acked and not told.
    waiting: usize,
    /// How many are delivered and not settled.
    open: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// In hand, or not seen yet.
    Open,
    /// Acked here; the server does not know.
    Acked,
    /// The server knows.
    Told,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            first: 1,
            marks: VecDeque::new(),
            waiting: 0,
            open: 0,
        }
    }
}

impl Book {
    /// A delivery came.
    pub(crate) fn deliver(&mut self, tag: u64) {
        let Some(place) = tag.checked_sub(self.first).map(|place| place as usize) else {
            return;
        };
        if place >= self.marks.len() {
            self.marks.resize(place + 1, Mark::Open);
        }
        self.open += 1;
    }

    /// The lowest tag that is not settled, as far as [`run`](Self::run) has looked.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Whether a delivery is in hand.
    pub(crate) fn is_open(&self, tag: u64) -> bool {
        let place = tag.checked_sub(self.first).map(|place| place as usize);
        place.and_then(|place| self.marks.get(place)) == Some(&Mark::Open)
    }

    /// How many are delivered and not settled.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// How many are unsettled as the server sees it.
    pub(crate) fn unsettled(&self) -> usize {
        self.open + self.waiting
    }

    /// Acked, not told yet.
    pub(crate) fn ack(&mut self, tag: u64) {
        if self.settle(tag, Mark::Acked) {
            self.waiting += 1;
        }
    }

    /// Settled with the server otherwise, such as by a negative ack.
    pub(crate) fn told(&mut self, tag: u64) {
        self.settle(tag, Mark::Told);
    }

    fn settle(&mut self, tag: u64, mark: Mark) -> bool {
        let place = tag.checked_sub(self.first).map(|place| place as usize);
        match place.and_then(|place| self.marks.get_mut(place)) {
            Some(known) if *known == Mark::Open => {
                *known = mark;
                self.open = self.open.saturating_sub(1);
                true
            }
            _ => false,
        }
    }

    /// The tag up to which everything has finished, if the server is to be told of any of it; the book then takes it as told.
    pub(crate) fn run(&mut self) -> Option<u64> {
        let mut last = None;
        while let Some(mark) = self.marks.front().copied().filter(|mark| *mark != Mark::Open) {
            if mark == Mark::Acked {
                last = Some(self.first);
                self.waiting -= 1;
            }
            self.marks.pop_front();
            self.first += 1;
        }
        last
    }

    /// Whether acks wait behind a gap.
    pub(crate) fn waits(&self) -> bool {
        self.waiting > 0
    }

    /// The acks that wait behind a gap, each for itself; the book then takes them as told.
    pub(crate) fn rest(&mut self, into: &mut Vec<u64>) {
        for (place, mark) in self.marks.iter_mut().enumerate() {
            if self.waiting == 0 {
                break;
            }
            if *mark == Mark::Acked {
                *mark = Mark::Told;
                self.waiting -= 1;
                into.push(self.first + place as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn delivered(last: u64) -> Book {
        let mut book = Book::default();
        for tag in 1..=last {
            book.deliver(tag);
        }
        book
    }

    #[test]
    fn a_run_ends_before_the_first_gap() {
        let mut book = delivered(5);
        for tag in [1, 2, 4] {
            book.ack(tag);
        }
        assert_eq!(book.run(), Some(2));
        assert!(book.waits());
        book.ack(3);
        assert_eq!(book.run(), Some(4));
        assert!(!book.waits());
        assert_eq!(book.run(), None);
        assert_eq!(book.open(), 1);
    }

    #[test]
    fn what_waits_too_long_is_told_one_by_one_and_not_twice() {
        let mut book = delivered(4);
        for tag in [3, 4] {
            book.ack(tag);
        }
        let mut rest = Vec::new();
        book.rest(&mut rest);
        assert_eq!(rest, [3, 4]);
        book.ack(1);
        assert_eq!(book.run(), Some(1));
        book.told(2);
        assert_eq!(book.run(), None);
    }

    proptest! {
        /// Whatever the order and the moments: the server, which takes a run as everything up to its tag, is told of each ack
        /// once at least, and never of a delivery that is in hand.
        #[test]
        fn the_server_learns_of_acks_and_of_nothing_else(
            order in Just((1..=40u64).collect::<Vec<_>>()).prop_shuffle(),
            keep in 0usize..10,
            tell in proptest::collection::vec(0u8..3, 40),
        ) {
            let mut book = delivered(40);
            let finished = &order[keep..];
            let mut acked = BTreeSet::new();
            let mut known = BTreeSet::new();
            for (tag, tell) in finished.iter().zip(&tell) {
                book.ack(*tag);
                acked.insert(*tag);
                if *tell > 0 && let Some(last) = book.run() {
                    known.extend(1..=last);
                }
                if *tell > 1 {
                    let mut rest = Vec::new();
                    book.rest(&mut rest);
                    known.extend(rest);
                }
                prop_assert!(known.is_subset(&acked));
            }
            if let Some(last) = book.run() {
                known.extend(1..=last);
            }
            let mut rest = Vec::new();
            book.rest(&mut rest);
            known.extend(rest);
            prop_assert_eq!(known, acked);
            prop_assert_eq!(book.open(), keep);
        }
    }
}
