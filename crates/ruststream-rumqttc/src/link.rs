//! The task of a connection: it makes links, reads and writes, and never waits for anyone else.
//!
//! Of rumqttc it uses the packets. Its own event loop is left out: a session that is lost while it waits for a packet id leaves it unable to
//! publish for ever, a publish from the task that polls it waits for itself, and it does not tell which acknowledgement is whose.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, Connect, ConnectProperties, ConnectReturnCode, Disconnect, DisconnectProperties, DisconnectReasonCode,
    Packet,
};
use ruststream::transport::ErrorKind;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::error::{Failure, ended_link, refused_link};
use crate::settings::{ClientId, Settings};
use crate::shared::{Ending, Shared};
use crate::stream::Stream;
use crate::wire::{MqttVersion, Reader};

/// How much is read at once. What is in hand keeps the piece that it came in.
const PIECE: usize = 16 * 1024;
/// Waits between attempts to connect: doubled up to the last, half of it by chance.
const WAITS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// The same where another client takes the session over.
const WAITS_FOR_SESSION: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// A link that stood for so long was a good one.
const STEADY: Duration = Duration::from_secs(30);
/// So many links in a row that the server ended soon and without a reason are taken for a quarrel over the session.
const QUARREL: u32 = 3;
/// What is still to be written when the connection closes has so long.
const FAREWELL: Duration = Duration::from_secs(2);

struct Link {
    stream: Stream,
    inbox: BytesMut,
    packets: Reader,
    answer: ConnAck,
}

/// How a link ended.
enum End {
    Lost(Failure),
    /// The server ended it and gave no reason, as Mosquitto 2.0 does when another client takes the session over.
    Silently(Failure),
    TakenOver(Failure),
    Closed,
}

/// Keeps a link to the server until the connection ends.
pub(crate) async fn drive(shared: Arc<Shared>) {
    let settings = shared.settings.clone();
    let client_id = match &settings.client_id {
        ClientId::Fixed(name) => name.clone(),
        ClientId::Unique(prefix) => format!("{prefix}-{:016x}", fastrand::u64(..)),
    };
    // In MQTT 3.1.1, a session that begins clean ends with its link; one that is to outlast links has to begin otherwise.
    let is_old = settings.version == MqttVersion::V3_1_1;
    let mut to_clear = is_old && settings.clean_start && settings.is_lasting();
    let mut clean = if is_old {
        settings.session_expiry.is_zero()
    } else {
        settings.clean_start || !settings.is_lasting()
    };
    let (mut failures, mut takeovers, mut silent) = (0, 0, 0);
    loop {
        let opening = timeout(settings.connect_timeout, async {
            if to_clear {
                clear_session(&settings, &client_id).await?;
            }
            Link::open(&settings, &client_id, clean).await
        });
        let opened = tokio::select! {
            opened = opening => opened,
            () = ended(&shared) => break,
        };
        let end = match opened {
            Ok(Ok(link)) => {
                to_clear = false;
                clean &= is_old;
                shared.link_made(&link.answer);
                let began = Instant::now();
                let end = link.serve(&shared, &settings).await;
                if began.elapsed() >= STEADY {
                    (failures, takeovers, silent) = (0, 0, 0);
                }
                end
            }
            Ok(Err(failure)) => End::Lost(failure),
            Err(_) => End::Lost(Failure::new(
                ErrorKind::Timeout,
                format!(
                    "{} did not take the link within {:?}",
                    settings.label, settings.connect_timeout
                ),
            )),
        };
        let end = match end {
            End::Silently(failure) => {
                silent += 1;
                let is_named = matches!(settings.client_id, ClientId::Fixed(_));
                if is_named && silent >= QUARREL {
                    End::TakenOver(failure)
                } else {
                    End::Lost(failure)
                }
            }
            end => end,
        };
        let wait = match end {
            End::Closed | End::Silently(_) => {
                if is_old && !clean && !settings.is_lasting() && shared.state().ending == Ending::Told {
                    let _ = timeout(FAREWELL, clear_session(&settings, &client_id)).await;
                }
                break;
            }
            End::Lost(failure) => {
                failures += 1;
                shared.link_lost(failure);
                wait(WAITS, failures)
            }
            End::TakenOver(failure) => {
                takeovers += 1;
                tracing::warn!(%client_id, "{}", failure.text);
                shared.link_lost(failure);
                wait(WAITS_FOR_SESSION, takeovers)
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = ended(&shared) => break,
        }
    }
    shared.has_ended();
}

/// Has the server throw a session away: MQTT 3.1.1 has no other word for it.
async fn clear_session(settings: &Settings, client_id: &str) -> Result<(), Failure> {
    let mut link = Link::open(settings, client_id, true).await?;
    let mut out = BytesMut::new();
    say_farewell(&mut out, settings);
    let io = link.stream.io();
    let written = async {
        io.write_all(&out).await?;
        io.shutdown().await
    };
    written.await.map_err(|error| broken(settings, &error))
}

fn wait((first, most): (Duration, Duration), failures: u32) -> Duration {
    let ceiling = first
        .saturating_mul(1 << failures.clamp(1, 16).saturating_sub(1))
        .min(most);
    ceiling / 2 + ceiling.mul_f64(fastrand::f64() / 2.0)
}

/// Waits until the connection is to end.
async fn ended(shared: &Shared) {
    while shared.state().ending == Ending::No {
        shared.work.notified().await;
    }
}

impl Link {
    /// Connects, and waits for the server's answer.
    async fn open(settings: &Settings, client_id: &str, clean: bool) -> Result<Self, Failure> {
        let label = &settings.label;
        let (host, port) = match &settings.address {
            Ok((host, port)) => (host.as_str(), *port),
            Err(wrong) => return Err(Failure::new(ErrorKind::Invalid, wrong.clone())),
        };
        let broken =
            |error: std::io::Error| Failure::new(ErrorKind::Unavailable, format!("{label} cannot be reached: {error}"));
        let mut stream = Stream::open(settings, host, port).await.map_err(broken)?;

        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let connect = Connect {
            keep_alive: u16::try_from(settings.keep_alive.as_secs()).unwrap_or(u16::MAX),
            client_id: client_id.to_owned(),
            clean_start: clean,
            properties: Some(ConnectProperties {
                session_expiry_interval: Some(seconds(settings.session_expiry)),
                receive_maximum: Some(settings.receive_maximum),
                max_packet_size: Some(settings.maximum_packet),
                ..ConnectProperties::new()
            }),
        };
        let mut out = BytesMut::new();
        let (will, login) = (settings.will.clone(), settings.login.clone());
        settings.version.write_connect(connect, will, login, &mut out)?;
        let io = stream.io();
        io.write_all(&out).await.map_err(broken)?;
        io.flush().await.map_err(broken)?;

        let mut inbox = BytesMut::with_capacity(PIECE);
        let mut packets = Reader::new(settings.version, settings.maximum_packet);
        let answer = loop {
            match next_packet(&mut packets, &mut inbox, settings)? {
                Some(Packet::ConnAck(answer)) => break answer,
                Some(Packet::Disconnect(told)) => return Err(ended_link(label, told.reason_code)),
                Some(_) => {
                    let text = format!(
                        "{label} answers, but not as a server of {} does",
                        settings.version.name()
                    );
                    return Err(Failure::new(ErrorKind::Incompatible, text));
                }
                None if io.read_buf(&mut inbox).await.map_err(broken)? == 0 => {
                    let text = format!("{label} ended the link before it answered");
                    return Err(Failure::new(ErrorKind::Unavailable, text));
                }
                None => {}
            }
        };
        if answer.code != ConnectReturnCode::Success {
            return Err(refused_link(label, answer.code));
        }
        Ok(Self {
            stream,
            inbox,
            packets,
            answer,
        })
    }

    /// Reads and writes until the link or the connection ends.
    async fn serve(self, shared: &Shared, settings: &Settings) -> End {
        let Self {
            stream,
            inbox,
            packets,
            answer,
        } = self;
        let serving = Serving {
            inbox,
            packets,
            answer,
            holds_back: !matches!(stream, Stream::Plain(_)),
        };
        match stream {
            Stream::Plain(mut stream) => {
                let (reader, writer) = stream.split();
                serving.run(reader, writer, shared, settings).await
            }
            #[cfg(feature = "tls")]
            Stream::Secure(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                serving.run(reader, writer, shared, settings).await
            }
        }
    }
}

/// A link at work.
struct Serving {
    inbox: BytesMut,
    packets: Reader,
    answer: ConnAck,
    /// Whether what was written may stand in a buffer below until it is flushed.
    holds_back: bool,
}

impl Serving {
    async fn run(
        mut self,
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
        shared: &Shared,
        settings: &Settings,
    ) -> End {
        let mut to_flush = false;
        let told = self.answer.properties.as_ref().and_then(|told| told.server_keep_alive);
        // A server that allows for more silence than was asked for does not make a dead link live.
        let interval = told.map_or(settings.keep_alive, |seconds| {
            Duration::from_secs(u64::from(seconds).max(1)).min(settings.keep_alive)
        });
        // Half of it without a word, and the server is asked; three times that, and the link is lost.
        let (ask, lost) = (interval / 2, interval + interval / 2);
        let mut out = BytesMut::with_capacity(PIECE);
        let (mut heard, mut asked) = (Instant::now(), Instant::now());
        let mut timer = std::pin::pin!(sleep_until(heard + ask));
        loop {
            let ending = {
                let mut state = shared.state();
                let mut told = false;
                loop {
                    match next_packet(&mut self.packets, &mut self.inbox, settings) {
                        Ok(Some(packet)) => match state.take_in(packet, &settings.label) {
                            Ok(tell) => told |= tell,
                            Err(failure) if failure.text.contains("SessionTakenOver") => {
                                return End::TakenOver(failure);
                            }
                            Err(failure) => return End::Lost(failure),
                        },
                        Ok(None) => break,
                        Err(failure) => return End::Lost(failure),
                    }
                }
                state.fill(&mut out);
                let ending = state.ending;
                drop(state);
                if told {
                    shared.changed();
                }
                ending
            };
            if ending != Ending::No {
                if ending == Ending::Told {
                    say_farewell(&mut out, settings);
                    let _ = timeout(FAREWELL, async {
                        writer.write_all(&out).await?;
                        writer.shutdown().await?;
                        // Closed with something unread, a socket throws away what the other side has not read yet either.
                        while reader.read_buf(&mut self.inbox).await? > 0 {
                            self.inbox.clear();
                        }
                        Ok::<_, std::io::Error>(())
                    })
                    .await;
                }
                return End::Closed;
            }
            if self.inbox.capacity() - self.inbox.len() < PIECE / 4 {
                self.inbox.reserve(PIECE);
            }
            tokio::select! {
                read = reader.read_buf(&mut self.inbox) => match read {
                    Ok(1..) => heard = Instant::now(),
                    Ok(0) => return End::Silently(ended_silently(settings)),
                    Err(error) => return End::Lost(broken(settings, &error)),
                },
                written = write(&mut writer, &mut out), if to_flush || !out.is_empty() => match written {
                    Ok(wrote) => to_flush = wrote && self.holds_back,
                    Err(error) => return End::Lost(broken(settings, &error)),
                },
                () = shared.work.notified() => {}
                () = &mut timer => {
                    let now = Instant::now();
                    if now >= heard + lost {
                        let text = format!("{} was silent for {lost:?}; the link counts as lost", settings.label);
                        return End::Lost(Failure::new(ErrorKind::Unavailable, text));
                    }
                    // The server, too, wants to hear something, though it speaks itself.
                    if now >= asked.max(heard) + ask || now >= asked + interval {
                        shared.state().ask_for_ping();
                        asked = now;
                    }
                    timer.as_mut().reset(now + ask / 2);
                }
            }
        }
    }
}

/// Writes a piece, or flushes where there is none; true if it wrote. Both go on where they were cut short.
async fn write(writer: &mut (impl AsyncWrite + Unpin), out: &mut BytesMut) -> std::io::Result<bool> {
    if out.is_empty() {
        writer.flush().await?;
        return Ok(false);
    }
    writer.write_buf(out).await?;
    Ok(true)
}

fn ended_silently(settings: &Settings) -> Failure {
    let label = &settings.label;
    let text = match &settings.client_id {
        ClientId::Fixed(name) => format!(
            "{label} ended the link without a reason; if another client has the same client id, `{name}`, each ends the other's \
             link: give each its own"
        ),
        ClientId::Unique(_) => format!("{label} ended the link without a reason"),
    };
    Failure::new(ErrorKind::Unavailable, text)
}

fn broken(settings: &Settings, error: &std::io::Error) -> Failure {
    Failure::new(
        ErrorKind::Unavailable,
        format!("the link to {} broke: {error}", settings.label),
    )
}

/// Tells the server that the client goes, and whether the session is to stay.
fn say_farewell(out: &mut BytesMut, settings: &Settings) {
    let properties = DisconnectProperties {
        session_expiry_interval: (!settings.is_lasting()).then_some(0),
        reason_string: None,
        user_properties: Vec::new(),
        server_reference: None,
    };
    let farewell = Disconnect {
        reason_code: DisconnectReasonCode::NormalDisconnection,
        properties: properties.session_expiry_interval.is_some().then_some(properties),
    };
    settings.version.write_disconnect(&farewell, out);
}

/// The next whole packet of what has been read.
fn next_packet(packets: &mut Reader, inbox: &mut BytesMut, settings: &Settings) -> Result<Option<Packet>, Failure> {
    // A DISCONNECT may leave out its properties, and even its reason (section 3.14.2): rumqttc reads neither.
    if settings.version == MqttVersion::V5
        && let [0xe0, length @ 0..=1, rest @ ..] = &inbox[..]
        && rest.len() >= usize::from(*length)
    {
        let code = rest.first().filter(|_| *length == 1).copied().unwrap_or_default();
        let code = DisconnectReasonCode::try_from(code).unwrap_or(DisconnectReasonCode::UnspecifiedError);
        return Err(ended_link(&settings.label, code));
    }
    packets.next(inbox).map_err(|error| {
        let text = format!(
            "{} sent what cannot be read ({error}); the link is made anew",
            settings.label
        );
        Failure::new(ErrorKind::Unavailable, text)
    })
}
