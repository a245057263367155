//! The loops that a person writes over the client alone: fetch, handle, settle.

use ruststream::memory::{MemoryBroker, MemoryConnection, MemoryFetch, MemoryPublisher, Queue};
use ruststream::message::{HeaderMap, Outgoing, header};
use ruststream::transport::{Broker, Connection, Delivery, Fetch, Publish, Settle, Source, Verdict};
use serde::Serialize;
use tokio::task::JoinSet;

use super::lent::Reader;
use super::messages::{Billed, IN, ORDER, OUT, Order, Receipt, SMALL};
use super::{MESSAGES, rounds};
use crate::costs::counted::Run;

type Taken = <MemoryFetch as Fetch>::Delivery;

/// How many messages a loop takes at once.
const AT_ONCE: usize = 256;

/// What one loop does with a message.
trait Handle: Send + 'static {
    fn handle(&mut self, delivery: &Taken) -> impl Future<Output = Verdict> + Send;
}

/// One that has nothing to wait for.
impl<F: FnMut(&Taken) -> Verdict + Send + 'static> Handle for F {
    async fn handle(&mut self, delivery: &Taken) -> Verdict {
        self(delivery)
    }
}

fn order(delivery: &Taken) -> Order {
    serde_json::from_slice(delivery.payload()).expect("it is an order")
}

fn bytes(delivery: &Taken) -> Verdict {
    assert!(!delivery.payload().is_empty());
    MESSAGES.one();
    Verdict::Ack
}

fn json_small(delivery: &Taken) -> Verdict {
    assert_eq!(order(delivery), ORDER);
    MESSAGES.one();
    Verdict::Ack
}

fn json_large(delivery: &Taken) -> Verdict {
    let order: Billed<'_> = serde_json::from_slice(delivery.payload()).expect("it is a large order");
    assert!(order.is_right());
    MESSAGES.one();
    Verdict::Ack
}

fn redeliver(delivery: &Taken) -> Verdict {
    assert_eq!(order(delivery), ORDER);
    if delivery.attempt() == 1 {
        return Verdict::Retry {
            after: std::time::Duration::ZERO,
        };
    }
    MESSAGES.one();
    Verdict::Ack
}

/// Sends a receipt for each order.
struct Sending<P> {
    publisher: P,
    headers: HeaderMap,
    reads_headers: bool,
    buffer: Vec<u8>,
}

impl<P: Publish> Sending<P> {
    fn new(publisher: P, headers: &[(&'static str, &'static str)]) -> Self {
        let content_type = (header::CONTENT_TYPE, "application/json");
        Self {
            publisher,
            headers: std::iter::once(&content_type).chain(headers).copied().collect(),
            reads_headers: false,
            buffer: Vec::new(),
        }
    }
}

impl<P: Publish> Handle for Sending<P> {
    async fn handle(&mut self, delivery: &Taken) -> Verdict {
        if self.reads_headers {
            let headers = delivery.headers();
            let schema: u32 = headers
                .get_str("schema")
                .and_then(|text| text.parse().ok())
                .expect("it is there");
            assert!(headers.get_str("region") == Some("eu-west-1") && schema == 3);
        }
        write(&mut self.buffer, &Receipt::of(order(delivery)));
        MESSAGES.one();
        let outgoing = [Outgoing::new(OUT, &self.buffer).with_headers(&self.headers)];
        self.publisher.publish(&outgoing).await.expect("the queue has room");
        Verdict::Ack
    }
}

fn write(buffer: &mut Vec<u8>, value: &impl Serialize) {
    buffer.clear();
    serde_json::to_writer(buffer, value).expect("it has a form in JSON");
}

/// A loop of its own on the queue.
async fn work(connection: MemoryConnection, at_once: usize, mut handler: impl Handle) {
    let opened = Queue::new(IN).open(&connection).await;
    let (mut fetch, mut settle) = opened.expect("the queue is there");
    let (mut taken, mut finished) = (Vec::new(), Vec::new());
    loop {
        fetch.fetch(at_once, &mut taken).await.expect("the link holds");
        for delivery in taken.drain(..) {
            let verdict = handler.handle(&delivery).await;
            finished.push((delivery.into_receipt(), verdict));
        }
        settle.settle(&mut finished).await.expect("the link holds");
    }
}

pub(super) async fn run(name: &str, run: Run) -> Result<(), String> {
    let broker = MemoryBroker::new();
    if name == "request-reply" {
        return ask(&broker, run).await;
    }
    let publisher: MemoryPublisher = broker.publisher();
    let mut tasks = rounds(&broker, name, run, async || {
        let mut tasks = JoinSet::new();
        for _ in 0..if name == "pool4" { 4 } else { 1 } {
            let connection = broker.connect().await.map_err(|error| error.to_string())?;
            match name {
                "bytes" => tasks.spawn(work(connection, AT_ONCE, bytes)),
                "json-small" | "pool4" => tasks.spawn(work(connection, AT_ONCE, json_small)),
                "json-1kb" => tasks.spawn(work(connection, AT_ONCE, json_large)),
                "batch64" => tasks.spawn(work(connection, 64, json_small)),
                "redeliver" => tasks.spawn(work(connection, AT_ONCE, redeliver)),
                "reply" => tasks.spawn(work(connection, AT_ONCE, Sending::new(publisher.clone(), &[]))),
                "reply-lent" => tasks.spawn(work(connection, AT_ONCE, Sending::new(Reader, &[]))),
                "publish" => {
                    let marked = [("sent-by", "bench")];
                    tasks.spawn(work(connection, AT_ONCE, Sending::new(publisher.clone(), &marked)))
                }
                "publish-headers" => {
                    let headers = [("region", "eu-west-1"), ("schema", "3")];
                    tasks.spawn(work(connection, AT_ONCE, Sending::new(publisher.clone(), &headers)))
                }
                "headers-publish" => {
                    let mut send = Sending::new(publisher.clone(), &[]);
                    send.reads_headers = true;
                    tasks.spawn(work(connection, AT_ONCE, send))
                }
                other => return Err(format!("`memory.{other}` has no bare loop")),
            };
        }
        Ok(tasks)
    })
    .await?;
    tasks.shutdown().await;
    Ok(())
}

/// Requests, one after the other, and a task that answers them where they ask for it.
async fn ask(broker: &MemoryBroker, run: Run) -> Result<(), String> {
    const REPLIES: &str = "replies";
    let connect = async || broker.connect().await.map_err(|error| error.to_string());
    let connection = connect().await?;
    let opened = Queue::new(REPLIES).open(&connection).await;
    let (mut fetch, mut settle) = opened.map_err(|error| error.to_string())?;
    let mut tasks = JoinSet::new();
    let answer = Answer {
        publisher: connection.publisher(),
        buffer: Vec::new(),
    };
    tasks.spawn(work(connect().await?, AT_ONCE, answer));

    let Run::Messages(messages) = run else {
        return Err("a bare loop has no cold start".to_owned());
    };
    let publisher = connection.publisher();
    let (mut taken, mut finished) = (Vec::new(), Vec::new());
    for number in 0..messages {
        let mut headers = HeaderMap::new();
        headers.append(header::REPLY_TO, REPLIES);
        headers.append(header::CORRELATION_ID, number.to_string());
        let request = [Outgoing::new(IN, SMALL).with_headers(&headers)];
        publisher.publish(&request).await.map_err(|error| error.to_string())?;
        fetch.fetch(1, &mut taken).await.map_err(|error| error.to_string())?;
        for delivery in taken.drain(..) {
            let receipt: Receipt = serde_json::from_slice(delivery.payload()).map_err(|error| error.to_string())?;
            assert_eq!(receipt, Receipt::of(ORDER));
            assert_eq!(
                delivery.headers().get(header::CORRELATION_ID),
                headers.get(header::CORRELATION_ID)
            );
            finished.push((delivery.into_receipt(), Verdict::Ack));
        }
        settle.settle(&mut finished).await.map_err(|error| error.to_string())?;
    }
    tasks.shutdown().await;
    Ok(())
}

/// Answers where a message asks for it.
struct Answer {
    publisher: MemoryPublisher,
    buffer: Vec<u8>,
}

impl Handle for Answer {
    async fn handle(&mut self, delivery: &Taken) -> Verdict {
        let asked = delivery.headers();
        let place = asked
            .get_str(header::REPLY_TO)
            .expect("a request says where the reply goes");
        let id = asked.get(header::CORRELATION_ID).expect("a request has an id");
        write(&mut self.buffer, &Receipt::of(order(delivery)));
        let mut headers = HeaderMap::new();
        headers.append(header::CONTENT_TYPE, "application/json");
        headers.append(header::CORRELATION_ID, id.to_vec());
        let outgoing = [Outgoing::new(place, &self.buffer).with_headers(&headers)];
        self.publisher.publish(&outgoing).await.expect("the queue has room");
        Verdict::Ack
    }
}
