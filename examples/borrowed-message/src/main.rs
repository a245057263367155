//! A filter for an access log: of each entry it looks at three fields, which it borrows from the payload, and it keeps the
//! few that matter.

use std::borrow::Cow;

use ruststream::prelude::*;
use ruststream::transport::PublishError;

/// One entry of the log, as long as its payload is there.
#[derive(Debug, Deserialize)]
struct Entry<'a> {
    /// A text without escapes, which can always be lent.
    method: &'a str,
    /// A text that may hold escapes: lent where it holds none, copied where it does.
    #[serde(borrow)]
    path: Cow<'a, str>,
    status: u16,
}

/// What is kept of an entry.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Alarm {
    text: String,
}

/// Raises an alarm for each request that the server failed.
#[subscriber("access-log")]
async fn watch(entry: Entry<'_>, alarms: Out<Alarm>) -> Result<(), PublishError> {
    if entry.status < 500 {
        return Ok(());
    }
    let text = format!("{} {} answered {}", entry.method, entry.path, entry.status);
    alarms.publish("alarms", &Alarm { text }).await
}

#[ruststream::app]
fn app() -> RustStream {
    RustStream::new(AppInfo::new("watcher", env!("CARGO_PKG_VERSION"))).with_broker(MemoryBroker::new(), |broker| {
        broker.include(watch).workers(4);
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use ruststream::testing::TestApp;

    use super::*;

    #[tokio::test]
    async fn a_failed_request_raises_an_alarm() -> Result<(), Box<dyn Error>> {
        let test = TestApp::start_paused(app()).await?;

        for payload in [
            r#"{"method":"GET","path":"/","status":200,"agent":"curl"}"#,
            r#"{"method":"PUT","path":"/a\"b","status":503}"#,
        ] {
            test.publish_bytes("access-log", payload).await?;
        }
        test.settled().await;

        let expected = "PUT /a\"b answered 503";
        let alarms = test.published::<Alarm>("alarms");
        assert_eq!(alarms.len(), 1);
        assert_eq!(alarms[0].text, expected);
        Ok(())
    }
}
