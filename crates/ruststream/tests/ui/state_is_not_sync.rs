use std::cell::Cell;

use ruststream::prelude::*;

fn main() {
    let sold = Cell::new(0u64);
    let _ = RustStream::new(AppInfo::new("orders", "1.0.0")).state(sold);
}
