use ruststream::handler::{Call, Extract};

struct Missing;

struct Tenant(String);

impl<'a, S: Send + Sync> Extract<'a, S> for Tenant {
    type Rejection = Missing;

    async fn extract(_: Call<'a, S>) -> Result<Self, Missing> {
        Err(Missing)
    }
}

fn main() {}
