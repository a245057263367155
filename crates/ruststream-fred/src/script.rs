//! Scripts that run in the server, each atomic.

use std::sync::OnceLock;

use fred::interfaces::Resp3Frame as Frame;
use fred::types::Value;

use crate::error::{Failure, Sign};
use crate::hub::Hub;
use crate::reply;

/// A script and the name that the server knows it by.
#[derive(Debug)]
pub(crate) struct Script {
    body: &'static str,
    /// Its SHA-1, as the server computed it: the same on every server.
    sha: OnceLock<String>,
}

impl Script {
    pub(crate) const fn new(body: &'static str) -> Self {
        Self {
            body,
            sha: OnceLock::new(),
        }
    }

    /// Runs the script in the node of `slot`, on keys of that slot.
    pub(crate) async fn run(
        &self,
        hub: &Hub,
        slot: u16,
        keys: &[&str],
        arguments: impl Fn(&mut Vec<Value>),
    ) -> Result<Frame, Failure> {
        let values = |first: &str| {
            let mut values: Vec<Value> = Vec::with_capacity(2 + keys.len() + 8);
            values.push(first.into());
            values.push(reply::count(keys.len()));
            values.extend(keys.iter().map(|key| Value::from(*key)));
            arguments(&mut values);
            values
        };
        let sha = if let Some(sha) = self.sha.get() {
            sha
        } else {
            let loaded = hub
                .call(slot, "SCRIPT", || vec!["LOAD".into(), self.body.into()])
                .await?;
            let sha = reply::text(loaded, "SCRIPT LOAD")?;
            self.sha.get_or_init(|| sha)
        };
        match hub.call(slot, "EVALSHA", || values(sha)).await {
            // A server that was started again, or took over, does not know it yet; this makes it known.
            Err(failure) if failure.sign == Sign::NoScript => hub.call(slot, "EVAL", || values(self.body)).await,
            answer => answer,
        }
    }
}
