use ruststream_sqlx::Inbox;

#[derive(Inbox)]
#[inbox(table = "jobs", run_at = "due", lease = "held_until")]
struct Job {
    #[inbox(id)]
    id: i64,
    #[inbox(attempt)]
    attempts: i32,
}

fn main() {}
