use ruststream_sqlx::Inbox;

#[derive(Inbox)]
#[inbox(table = "jobs")]
enum Job {
    Mail,
}

fn main() {}
