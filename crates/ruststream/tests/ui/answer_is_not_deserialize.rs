use ruststream::publish::Client;

struct Answer;

async fn ask(client: Client) {
    let _ = client.request::<u64, Answer>("quotes", &7).await;
}

fn main() {}
