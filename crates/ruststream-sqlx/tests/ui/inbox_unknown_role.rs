use ruststream_sqlx::Inbox;

#[derive(Inbox)]
#[inbox(table = "jobs")]
struct Job {
    #[inbox(identity)]
    id: i64,
}

fn main() {}
