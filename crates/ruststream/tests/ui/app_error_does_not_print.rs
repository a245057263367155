use ruststream::prelude::*;

struct ShopError;

#[ruststream::app]
fn app() -> Result<RustStream, ShopError> {
    if std::env::args().count() > 9 {
        return Err(ShopError);
    }
    Ok(RustStream::new(AppInfo::new("orders", "1.0.0")))
}
