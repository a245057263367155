//! What one message costs: instructions counted by callgrind, allocations by DHAT.
//!
//! A *row* is a scenario whose loops are run by a program of its transport (`src/bin/costs_memory.rs`). gungraun runs that program
//! under valgrind (`benches/costs_memory.rs`), once for `M` messages and once for `2M`; a figure is `(cost(2M) - cost(M)) / M`, so
//! that what happens once cancels out. A cold start is the difference of two runs too: one that ends with its first message
//! handled, and one that ends just before the app is built. `src/bin/costs.rs` makes figures of the counts, writes them into the
//! results, and judges them ([`gate`]).

pub mod counted;
pub mod gate;
#[cfg(feature = "costs")]
pub mod group;
#[cfg(all(feature = "costs", feature = "memory"))]
pub mod memory;
#[cfg(all(feature = "costs", feature = "mqtt"))]
pub mod mqtt;
#[cfg(feature = "costs")]
pub mod program;
#[cfg(all(feature = "costs", feature = "redis"))]
pub mod redis;
pub mod rows;
