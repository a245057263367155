//! The line that says what is being done.

use std::io::{IsTerminal as _, Write as _, stderr};

/// One line on the standard error, written over where that is a terminal.
pub(super) struct Progress {
    over: bool,
    of: usize,
    at: usize,
    /// Characters of the line that stands there now.
    width: usize,
}

impl Progress {
    /// For so many scenarios.
    pub(super) fn new(of: usize) -> Self {
        Self {
            over: stderr().is_terminal(),
            of,
            at: 0,
            width: 0,
        }
    }

    /// The next scenario begins.
    pub(super) fn scenario(&mut self, id: &str) {
        self.at += 1;
        if !self.over {
            eprintln!("[{}/{}] {id}", self.at, self.of);
        }
    }

    /// Something is being done for the scenario. Not told where lines cannot be written over: a log wants results.
    pub(super) fn doing(&mut self, id: &str, what: &str) {
        if self.over {
            let line = format!("[{}/{}] {id}: {what}", self.at, self.of);
            let width = line.chars().count();
            eprint!("\r{line}{}", " ".repeat(self.width.saturating_sub(width)));
            self.width = width;
            // A progress line that cannot be written is no reason to stop measuring.
            let _ = stderr().flush();
        }
    }

    /// Makes room for what is printed next.
    pub(super) fn clear(&mut self) {
        if self.over && self.width > 0 {
            eprint!("\r{}\r", " ".repeat(self.width));
            let _ = stderr().flush();
            self.width = 0;
        }
    }
}
