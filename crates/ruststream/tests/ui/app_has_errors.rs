use ruststream::prelude::*;

mod arguments {
    use super::*;

    #[ruststream::app(name = "orders")]
    fn app() -> RustStream {
        RustStream::new(AppInfo::new("orders", "1.0.0"))
    }
}

mod parameters {
    use super::*;

    #[ruststream::app]
    fn app(name: &'static str) -> RustStream {
        RustStream::new(AppInfo::new(name, "1.0.0"))
    }
}

mod nothing {
    #[ruststream::app]
    fn app() {
        drop(ruststream::RustStream::new(ruststream::AppInfo::new("orders", "1.0.0")));
    }
}

#[ruststream::app]
fn main() -> RustStream {
    RustStream::new(AppInfo::new("orders", "1.0.0"))
}
