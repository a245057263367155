use ruststream::prelude::*;

#[ruststream::app]
fn app() -> RustStream {
    AppInfo::new("orders", "1.0.0")
}
