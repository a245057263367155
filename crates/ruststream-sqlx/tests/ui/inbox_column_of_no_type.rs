use ruststream::prelude::*;
use ruststream_sqlx::{Inbox, Postgres};

#[derive(Inbox)]
#[inbox(table = "jobs", attempt = "attempts", run_at = "due", lease = "held_until", token = "holder")]
struct Job {
    #[inbox(id)]
    id: std::net::TcpStream,
}

fn main() {
    let _ = Inbox::table::<Job, Postgres>("jobs");
}
