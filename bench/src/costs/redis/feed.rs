//! What publishes to the services: it writes to a socket what it made once, so that it neither counts nor allocates.

use std::io::{BufRead as _, BufReader, Error, ErrorKind, Write as _};
use std::net::TcpStream;

use crate::costs::program::{ROUND, uncounted};

pub(super) struct Feed {
    server: BufReader<TcpStream>,
    /// The command of one message, so many times as a round has messages.
    round: Vec<u8>,
    command: usize,
    answer: Vec<u8>,
}

impl Feed {
    /// A connection of its own, which sends this command.
    pub(super) fn open(port: u16, words: &[&str]) -> Result<Self, Error> {
        let words: Vec<_> = words
            .iter()
            .map(|word| format!("${}\r\n{word}\r\n", word.len()))
            .collect();
        let command = format!("*{}\r\n{}", words.len(), words.concat());
        Ok(Self {
            server: BufReader::new(TcpStream::connect(("127.0.0.1", port))?),
            round: command.repeat(ROUND as usize).into_bytes(),
            command: command.len(),
            answer: Vec::with_capacity(64),
        })
    }

    /// Sends so many messages, and waits until the server has them.
    pub(super) fn send(&mut self, messages: u64) {
        uncounted(|| self.try_send(messages).expect("the server takes messages"));
    }

    fn try_send(&mut self, messages: u64) -> Result<(), Error> {
        let bytes = &self.round[..self.command * messages as usize];
        self.server.get_mut().write_all(bytes)?;
        for _ in 0..messages {
            // One line, or a length and a line.
            loop {
                self.answer.clear();
                self.server.read_until(b'\n', &mut self.answer)?;
                match self.answer.first() {
                    Some(b'$') => {}
                    Some(b'-') | None => {
                        let said = String::from_utf8_lossy(&self.answer).into_owned();
                        return Err(Error::new(ErrorKind::InvalidData, said));
                    }
                    Some(_) => break,
                }
            }
        }
        Ok(())
    }
}
