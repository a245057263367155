//! What the counted programs share.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::counted::Run;

/// Messages that are published at a time, each round handled before the next.
pub const ROUND: u64 = 1024;

/// So often the clock goes on.
const TICK: u64 = 64;
/// So long a message takes, by the clock of a counted program.
const MESSAGE: Duration = Duration::from_nanos(300);

/// The messages of one round that are not handled yet.
pub struct Round {
    left: AtomicU64,
    done: Notify,
}

impl Round {
    /// A round that has not begun.
    pub const fn new() -> Self {
        Self {
            left: AtomicU64::new(0),
            done: Notify::const_new(),
        }
    }

    /// Begins a round of so many messages.
    pub fn begin(&self, messages: u64) {
        self.left.store(messages, Ordering::Relaxed);
    }

    /// One message is handled.
    #[inline]
    pub fn one(&self) {
        let left = self.left.fetch_sub(1, Ordering::Relaxed) - 1;
        if left.is_multiple_of(TICK) {
            uncounted(pass_time);
            if left == 0 {
                self.done.notify_one();
            }
        }
    }

    /// Waits until all are handled.
    pub async fn done(&self) {
        self.done.notified().await;
    }
}

/// Lets the clock go on by what the messages since the last tick took. How many messages a worker takes at once depends on
/// how long they take; under valgrind, on a busy machine, no two runs would agree. So the runtime of a counted program has its clock
/// stopped, and it goes on here alone.
fn pass_time() {
    let passing = pin!(tokio::time::advance(MESSAGE * TICK as u32));
    // The first poll moves the clock; the rest only lets other tasks run.
    let _ = passing.poll(&mut Context::from_waker(Waker::noop()));
}

impl Default for Round {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs what is no part of the figure: callgrind is told by the name of this function to count nothing in it.
#[inline(never)]
pub fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    std::hint::black_box(work())
}

/// The options by which callgrind counts all but [`uncounted`].
pub const OPTIONS: &str = "--callgrind:toggle-collect=*program::uncounted* --callgrind:collect-atstart=yes";

/// The row, the loop and the run that the arguments of a counted program name.
///
/// # Errors
///
/// The usage, where they name none.
pub fn arguments() -> Result<(String, String, Run), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [row, of, run] => Ok((row.clone(), of.clone(), run.parse()?)),
        _ => Err("usage: PROGRAM ROW LOOP idle|first|MESSAGES".to_owned()),
    }
}

/// The runtime of a counted program: one thread, so that no two runs take turns differently, and a clock of its own.
///
/// # Errors
///
/// As the builder of tokio says.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
}

/// Ends the program where it is: what a run leaves behind is no part of its cost.
pub fn end_here() -> ! {
    std::process::exit(0)
}
