//! Requests over an SQLite file: who asks and who answers may be two processes.

use crate::place::Place;
use crate::support;
use ruststream::prelude::*;
use tokio::task::JoinSet;

#[subscriber("doubles", reply)]
async fn double(number: u64) -> u64 {
    number * 2
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_answered_by_another_connection_and_leave_nothing_behind() {
    let place = Place::new().await;
    let app = |name| RustStream::new(AppInfo::new(name, "1.0.0"));
    let answering = app("answering").with_broker(place.broker(), |broker| {
        broker.include(double).workers(4);
    });
    let answering = answering.start().await.unwrap();
    let asking = app("asking").with_broker(place.broker(), |_| {}).start().await.unwrap();
    let client = asking.client().await.unwrap();

    let mut requests = JoinSet::new();
    for number in 0..200u64 {
        let asked = client
            .request::<u64, u64>("doubles", &number)
            .timeout(support::PATIENCE);
        requests.spawn(async move { (number, asked.await.unwrap()) });
    }
    for (number, answer) in requests.join_all().await {
        assert_eq!(answer, number * 2);
    }

    let late = client
        .request::<u64, u64>("nobody", &1)
        .timeout(Duration::from_millis(50));
    assert!(late.await.unwrap_err().is_timeout());
    assert_eq!(client.strays(), 0);
    let waiting = tokio::spawn(client.request::<u64, u64>("nobody", &1).into_future());
    asking.shutdown().await.unwrap();
    assert!(waiting.await.unwrap().unwrap_err().is_closed());
    answering.shutdown().await.unwrap();
    let left = "SELECT count(*) FROM ruststream_messages WHERE queue LIKE 'replies.%'";
    assert_eq!(place.number(left).await, 0);
}
