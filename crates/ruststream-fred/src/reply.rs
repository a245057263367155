//! Reading what the server answers, without copying it; and writing numbers.

use bytes::Bytes;
use fred::interfaces::Resp3Frame as Frame;
use fred::types::Value;

use crate::error::Failure;

/// The parts of an answer that has parts.
pub(crate) fn parts(frame: Frame, what: &str) -> Result<Vec<Frame>, Failure> {
    match frame {
        Frame::Array { data, .. } | Frame::Push { data, .. } => Ok(data),
        Frame::Null => Ok(Vec::new()),
        _ => Err(Failure::strange(what)),
    }
}

/// A text or binary value.
pub(crate) fn bytes(frame: Frame, what: &str) -> Result<Bytes, Failure> {
    match frame {
        Frame::BlobString { data, .. } | Frame::SimpleString { data, .. } | Frame::VerbatimString { data, .. } => {
            Ok(data)
        }
        Frame::Number { data, .. } => Ok(Bytes::from(data.to_string())),
        _ => Err(Failure::strange(what)),
    }
}

/// A text.
pub(crate) fn text(frame: Frame, what: &str) -> Result<String, Failure> {
    let bytes = bytes(frame, what)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A whole number.
pub(crate) fn number(frame: &Frame, what: &str) -> Result<i64, Failure> {
    match frame {
        Frame::Number { data, .. } => Ok(*data),
        Frame::BlobString { data, .. } | Frame::SimpleString { data, .. } => std::str::from_utf8(data)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| Failure::strange(what)),
        _ => Err(Failure::strange(what)),
    }
}

/// Exactly `N` parts.
pub(crate) fn exactly<const N: usize>(frame: Frame, what: &str) -> Result<[Frame; N], Failure> {
    parts(frame, what)?.try_into().map_err(|_| Failure::strange(what))
}

/// A count as an argument.
pub(crate) fn count(count: usize) -> Value {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}
