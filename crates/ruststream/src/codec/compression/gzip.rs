//! gzip (RFC 1952).

use std::io::{self, Read, Write as _};

use flate2::Compression as Level;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::{Compression, Writer};

pub(crate) struct Gzip;

impl Compression for Gzip {
    fn name(&self) -> &'static str {
        "gzip"
    }

    fn reader<'a>(&self, payload: &'a [u8], _at_most: usize) -> io::Result<Box<dyn Read + Send + 'a>> {
        // Its window has 32 KiB, whatever the payload says.
        Ok(Box::new(MultiGzDecoder::new(payload)))
    }

    fn writer(&self, length: usize, level: Option<i32>) -> io::Result<Box<dyn Writer>> {
        let level = level.map_or(Level::default(), |level| Level::new(level.clamp(0, 9).unsigned_abs()));
        Ok(Box::new(GzEncoder::new(Vec::with_capacity(length / 4), level)))
    }
}

impl Writer for GzEncoder<Vec<u8>> {
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.write_all(piece)
    }

    fn finish(self: Box<Self>) -> io::Result<Vec<u8>> {
        GzEncoder::finish(*self)
    }
}
