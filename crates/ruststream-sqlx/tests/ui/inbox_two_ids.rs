use ruststream_sqlx::Inbox;

#[derive(Inbox)]
#[inbox(table = "jobs", attempt = "attempts", run_at = "due", lease = "held_until", token = "holder")]
struct Job {
    #[inbox(id)]
    id: i64,
    #[inbox(id)]
    number: i64,
}

fn main() {}
