use ruststream_sqlx::Inbox;

#[derive(Inbox)]
struct Job {
    #[inbox(id)]
    id: i64,
}

fn main() {}
