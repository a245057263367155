//! The wire: frames over TCP, each behind its length, and the parts that stand in a frame.
//!
//! A client sends a request and gets one answer, in order. The first byte of a request says what it is:
//!
//! | request | holds | answer |
//! | --- | --- | --- |
//! | [`HELLO`] | | [`GREETING`] |
//! | [`PUBLISH`] | (queue, body) for each message | empty, once all are stored |
//! | [`FETCH`] | room, milliseconds to wait, queue | (delivery, attempt, body) for each; none if the wait was in vain |
//! | [`SETTLE`] | (delivery, verdict) for each | how many of the deliveries are no longer the client's to settle |
//!
//! The body is the client's matter. Numbers are little-endian, parts stand behind their length.

use std::io::{self, ErrorKind};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const HELLO: u8 = 0;
pub(crate) const PUBLISH: u8 = 1;
pub(crate) const FETCH: u8 = 2;
pub(crate) const SETTLE: u8 = 3;

pub(crate) const ACK: u8 = 0;
pub(crate) const RETRY: u8 = 1;
pub(crate) const RELEASE: u8 = 2;
/// Followed by the attempts to count, as a `u32`.
pub(crate) const RETURN: u8 = 3;

pub(crate) const GREETING: &[u8] = b"own-transport 1";

/// A frame grows to about this much before the next begins.
pub(crate) const GROUP_BYTES: usize = 1 << 20;
/// The largest body of a message: with a group before it, it still fits a frame.
pub(crate) const BODY_LIMIT: usize = 8 << 20;
const FRAME_LIMIT: usize = 16 << 20;

/// One end of a connection.
///
/// What was read of a frame, and what is still to be written, is kept here and not in a future: so each method may be dropped
/// at any await point, and the next call goes on where it stopped.
pub(crate) struct Link {
    stream: TcpStream,
    incoming: BytesMut,
    outgoing: BytesMut,
}

impl Link {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        // A request is one write, which should not wait for more to come.
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
        })
    }

    /// Puts a frame in line. It leaves with the next [`frame`](Self::frame).
    pub(crate) fn send(&mut self, frame: &[u8]) {
        put_part(&mut self.outgoing, frame);
    }

    /// Writes what is in line, then waits for the next frame of the other end.
    pub(crate) async fn frame(&mut self) -> io::Result<Bytes> {
        while !self.outgoing.is_empty() {
            self.stream.write_buf(&mut self.outgoing).await?;
        }
        loop {
            if let Some(length) = self.incoming.first_chunk::<4>() {
                let length = u32::from_le_bytes(*length) as usize;
                if length > FRAME_LIMIT {
                    return Err(ErrorKind::InvalidData.into());
                }
                if self.incoming.len() >= 4 + length {
                    self.incoming.advance(4);
                    return Ok(self.incoming.split_to(length).freeze());
                }
            }
            self.read().await?;
        }
    }

    /// Waits until the other end has said more than was read, or has gone.
    pub(crate) async fn heard(&mut self) -> io::Result<()> {
        if self.incoming.is_empty() {
            self.read().await
        } else {
            Ok(())
        }
    }

    async fn read(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.incoming).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// False where the other end is known to have gone, or says what nobody asked for.
    pub(crate) fn is_quiet(&self) -> bool {
        let nothing_yet = self.stream.try_read(&mut [0]);
        nothing_yet.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// Appends a part behind its length.
pub(crate) fn put_part(into: &mut impl Extend<u8>, part: &[u8]) {
    let length = u32::try_from(part.len()).expect("a part is smaller than a frame");
    into.extend(length.to_le_bytes());
    into.extend(part.iter().copied());
}

/// Takes a part off the front.
pub(crate) fn get_part(from: &mut Bytes) -> io::Result<Bytes> {
    let length = from.try_get_u32_le()? as usize;
    if length > from.len() {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(from.split_to(length))
}

/// Takes a text off the front.
pub(crate) fn get_text(from: &mut Bytes) -> io::Result<String> {
    let part = get_part(from)?;
    String::from_utf8(part.into()).map_err(|_| ErrorKind::InvalidData.into())
}
