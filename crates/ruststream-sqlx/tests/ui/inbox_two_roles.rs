use ruststream_sqlx::Inbox;

#[derive(Inbox)]
#[inbox(table = "jobs")]
struct Job {
    #[inbox(id, key)]
    id: i64,
}

fn main() {}
