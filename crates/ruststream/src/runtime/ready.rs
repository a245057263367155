//! A queue that is handed on by the piece: a worker takes what it needs without its messages being moved one by one.

use std::collections::VecDeque;
use std::mem;

/// The size of a piece: what a worker takes at once at the most.
const PIECE: usize = 256;
/// The smallest batch whose size pieces have.
const SMALLEST: usize = 16;
/// Emptied pieces kept for later.
const SPARE: usize = 32;

/// A queue in pieces, none of them empty.
pub(super) struct Ready<T> {
    pieces: VecDeque<VecDeque<T>>,
    /// The size of a piece.
    piece: usize,
    length: usize,
    spare: Vec<VecDeque<T>>,
}

impl<T> Default for Ready<T> {
    fn default() -> Self {
        Self {
            pieces: VecDeque::new(),
            piece: PIECE,
            length: 0,
            spare: Vec::new(),
        }
    }
}

impl<T> Ready<T> {
    /// A queue that is taken from by batches of so many, each a whole piece.
    pub(super) fn of_batches(size: usize) -> Self {
        Self {
            piece: if size < SMALLEST { PIECE } else { size.min(PIECE) },
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.pieces.front()?.front()
    }

    /// How many items, counted from the first and up to `most`, are such that `holds`, until one is not.
    pub(super) fn leading(&self, most: usize, holds: impl Fn(&T) -> bool) -> usize {
        let mut leading = 0;
        for part in self.pieces.iter().flat_map(|piece| <[_; 2]>::from(piece.as_slices())) {
            let part = &part[..part.len().min(most - leading)];
            match part.iter().position(|item| !holds(item)) {
                Some(place) => return leading + place,
                None => leading += part.len(),
            }
            if leading == most {
                break;
            }
        }
        leading
    }

    pub(super) fn push_back(&mut self, item: T) {
        self.length += 1;
        match self.pieces.back_mut() {
            Some(piece) if piece.len() < self.piece => piece.push_back(item),
            _ => {
                let mut piece = self.spare.pop().unwrap_or_else(|| VecDeque::with_capacity(self.piece));
                piece.push_back(item);
                self.pieces.push_back(piece);
            }
        }
    }

    /// Adds many at the end.
    pub(super) fn extend(&mut self, items: impl ExactSizeIterator<Item = T>) {
        let mut items = items;
        self.length += items.len();
        while items.len() > 0 {
            if self.pieces.back().is_none_or(|piece| piece.len() >= self.piece) {
                let piece = self.spare.pop().unwrap_or_else(|| VecDeque::with_capacity(self.piece));
                self.pieces.push_back(piece);
            }
            let Some(piece) = self.pieces.back_mut() else { return };
            let room = self.piece - piece.len();
            piece.extend(items.by_ref().take(room));
        }
    }

    pub(super) fn push_front(&mut self, item: T) {
        self.length += 1;
        match self.pieces.front_mut() {
            Some(piece) if piece.len() < self.piece => piece.push_front(item),
            _ => {
                let mut piece = self.spare.pop().unwrap_or_else(|| VecDeque::with_capacity(self.piece));
                piece.push_back(item);
                self.pieces.push_front(piece);
            }
        }
    }

    /// Moves the first `number` items, or all if there are fewer, to the end of `into`.
    pub(super) fn take(&mut self, number: usize, into: &mut VecDeque<T>) {
        let mut left = number.min(self.length);
        self.length -= left;
        while left > 0 {
            let Some(piece) = self.pieces.front_mut() else { return };
            if piece.len() > left {
                into.extend(piece.drain(..left));
                return;
            }
            left -= piece.len();
            if into.is_empty() {
                mem::swap(into, piece);
            } else {
                into.append(piece);
            }
            if let Some(emptied) = self.pieces.pop_front()
                && self.spare.len() < SPARE
            {
                self.spare.push(emptied);
            }
        }
    }

    /// Takes out the items of which `gone` is true.
    pub(super) fn extract(&mut self, gone: impl Fn(&T) -> bool) -> Vec<T> {
        let empty = Self {
            piece: self.piece,
            ..Self::default()
        };
        let (out, stay): (Vec<T>, Vec<T>) = mem::replace(self, empty).into_iter().partition(|item| gone(item));
        self.extend(stay.into_iter());
        out
    }
}

impl<T> IntoIterator for Ready<T> {
    type Item = T;
    type IntoIter = std::iter::Flatten<std::collections::vec_deque::IntoIter<VecDeque<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.pieces.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// It does what a plain queue does.
        #[test]
        fn it_keeps_the_order_of_a_queue(size in 0..300usize, steps in prop::collection::vec((0..5u8, 0..200usize), 0..60)) {
            let mut ready = Ready::of_batches(size);
            let mut plain = VecDeque::new();
            let mut next = 0u32;
            for (step, number) in steps {
                match step {
                    0 => for _ in 0..number % 3 {
                        ready.push_back(next);
                        plain.push_back(next);
                        next += 1;
                    },
                    4 => {
                        let many = next..next + number as u32;
                        plain.extend(many.clone());
                        ready.extend(many.clone());
                        next = many.end;
                    }
                    1 => for _ in 0..number {
                        ready.push_front(next);
                        plain.push_front(next);
                        next += 1;
                    },
                    2 => {
                        let mut taken = VecDeque::new();
                        ready.take(number, &mut taken);
                        let expected: VecDeque<u32> = plain.drain(..number.min(plain.len())).collect();
                        prop_assert_eq!(taken, expected);
                    }
                    _ => {
                        let out = ready.extract(|item| *item as usize % 7 == number % 7);
                        let expected: Vec<u32> = plain.iter().copied().filter(|item| *item as usize % 7 == number % 7).collect();
                        plain.retain(|item| *item as usize % 7 != number % 7);
                        prop_assert_eq!(out, expected);
                    }
                }
                prop_assert_eq!(ready.len(), plain.len());
                prop_assert_eq!(ready.front(), plain.front());
                let small = |item: &u32| item % 50 != 49;
                let leading = plain.iter().take(number).take_while(|item| small(item)).count();
                prop_assert_eq!(ready.leading(number, small), leading);
            }
        }
    }
}
