//! Zstandard (RFC 8878).

use std::io::{self, Read, Write as _};

use zstd::stream::{read, write};

use super::{Compression, Writer};

/// The window, as a power of two, that readers offer unless told otherwise (`ZSTD_WINDOWLOG_LIMIT_DEFAULT`). Of its 128 MiB only what
/// is decompressed is ever touched.
const USUAL_WINDOW: u32 = 27;
/// The widest window of all platforms.
const WIDEST_WINDOW: u32 = 30;

pub(crate) struct Zstd;

impl Compression for Zstd {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn reader<'a>(&self, payload: &'a [u8], at_most: usize) -> io::Result<Box<dyn Read + Send + 'a>> {
        let mut reader = read::Decoder::with_buffer(payload)?;
        // A few bytes may ask for a window of gigabytes.
        let whole = at_most.checked_next_power_of_two().unwrap_or(usize::MAX).ilog2();
        reader.window_log_max(whole.clamp(USUAL_WINDOW, WIDEST_WINDOW))?;
        Ok(Box::new(reader))
    }

    fn writer(&self, length: usize, level: Option<i32>) -> io::Result<Box<dyn Writer>> {
        let levels = zstd::compression_level_range();
        let level = level.map_or(zstd::DEFAULT_COMPRESSION_LEVEL, |level| {
            level.clamp(*levels.start(), *levels.end())
        });
        let mut writer = write::Encoder::new(Vec::with_capacity(length / 4), level)?;
        // So its tables are no larger than the payload needs, and its readers know the size beforehand.
        writer.set_pledged_src_size(Some(length as u64))?;
        writer.include_checksum(true)?;
        Ok(Box::new(writer))
    }
}

impl Writer for write::Encoder<'static, Vec<u8>> {
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.write_all(piece)
    }

    fn finish(self: Box<Self>) -> io::Result<Vec<u8>> {
        write::Encoder::finish(*self)
    }
}
