//! What is wrong with settings, as far as it can be told without a server.

use std::time::Duration;

use ruststream::transport::{ErrorKind, Source, TransportError};

use crate::queue::{Declaration, QueueType, Spec, check_name};
use crate::settings::Settings;

/// What the settings of a broker ask for that cannot be.
pub(crate) fn broker(settings: &Settings) -> Result<(), TransportError> {
    let uri = settings.uri.as_ref().map_err(|text| invalid(text.clone()))?;
    if uri.vhost.is_empty() {
        return Err(invalid(
            "the URL names a virtual host without a name: leave the path out for `/`, or write its name behind the port".to_owned(),
        ));
    }
    for (name, time) in [
        ("connect_timeout", settings.connect_timeout),
        ("call_timeout", settings.call_timeout),
        ("publish_timeout", settings.publish_timeout),
    ] {
        if time.is_zero() {
            return Err(invalid(format!(
                "the {name} of {} is zero, so that nothing would ever be in time: give it some seconds",
                settings.label
            )));
        }
    }
    if settings.heartbeat > Duration::from_secs(u16::MAX.into()) {
        return Err(invalid(format!(
            "a heartbeat of {:?} is longer than AMQP has it: give it at most {} s",
            settings.heartbeat,
            u16::MAX
        )));
    }
    if settings.connection_name.len() > 255 {
        return Err(invalid(format!(
            "the connection's name has {} bytes: give it at most 255",
            settings.connection_name.len()
        )));
    }
    let topology = &settings.topology;
    for (place, exchange) in topology.exchanges.iter().enumerate() {
        exchange.check()?;
        let twice = |other: &&crate::Exchange| other.name() == exchange.name() && *other != exchange;
        if topology.exchanges[..place].iter().any(|other| twice(&other)) {
            return Err(invalid(format!(
                "exchange `{}` is declared twice, and not alike: leave one of them out",
                exchange.name()
            )));
        }
    }
    for (place, queue) in topology.queues.iter().enumerate() {
        queue.check()?;
        for other in &topology.queues[..place] {
            if other.name() == queue.name()
                && let Some(what) = queue.spec.differs_from(&other.spec)
            {
                return Err(invalid(format!(
                    "queue `{}` is declared twice, with another {what} each time: leave one of them out",
                    queue.name()
                )));
            }
        }
    }
    topology.bindings.iter().try_for_each(crate::Binding::check)
}

/// What a queue asks for that does not go together.
pub(crate) fn queue(spec: &Spec) -> Result<(), TransportError> {
    check_name("the queue", &spec.name)?;
    check_name("the queue for dead letters", &spec.dead_letters)?;
    let name = &spec.name;
    let text = if spec.name.starts_with("amq.") && spec.declaration == Declaration::Assert {
        format!("queue `{name}` cannot be made: names that begin with `amq.` are the server's own; give it another")
    } else if spec.is_server_named() && spec.bindings.is_empty() {
        format!("nothing leads to `{name}`, whose name the server chooses: bind it to an exchange with .bound_to(..)")
    } else if spec.is_server_named() && spec.declaration != Declaration::Assert {
        format!("the server chooses the name of `{name}` when it is declared: leave .declaration(..) out")
    } else if let Some(text) = of_type(spec) {
        text
    } else if let Some(method) = spec.stream_setting.filter(|_| spec.queue_type != QueueType::Stream) {
        format!(
            "queue `{name}` is a {} queue, and only streams have .{method}(..): add .stream(), or leave it out",
            spec.queue_type.word()
        )
    } else if let Some(reader) = spec
        .reader
        .as_ref()
        .filter(|reader| reader.is_empty() || reader.len() > 40)
    {
        format!(
            "the reader's name of stream `{name}` has {} bytes: give it 1 to 40",
            reader.len()
        )
    } else if spec.has("x-overflow") && !spec.has("x-max-length") && !spec.has("x-max-length-bytes") {
        format!("queue `{name}` refuses what is beyond a length that it does not have: add .max_length(..)")
    } else {
        return Ok(());
    };
    Err(invalid(text))
}

/// What the type of a queue cannot do; <https://www.rabbitmq.com/docs/quorum-queues#feature-matrix> and
/// <https://www.rabbitmq.com/docs/streams#feature-comparison>.
fn of_type(spec: &Spec) -> Option<String> {
    let flags = [
        (spec.is_server_named(), "have a name of the server's choice"),
        (spec.exclusive, "be exclusive"),
        (spec.auto_delete, "end with its consumers (auto-delete)"),
    ];
    let arguments = [
        ("x-max-priority", "have priorities"),
        ("x-queue-mode", "be lazy"),
        (
            "x-message-ttl",
            "drop messages by their time (message_ttl); .max_age(..) is what a stream has",
        ),
        ("x-expires", "end when it is unused (expires)"),
        (
            "x-max-length",
            "have a length in messages; .max_length_bytes(..) is what a stream has",
        ),
        ("x-overflow", "refuse publishes (reject_publish)"),
        ("x-dead-letter-exchange", "lead what it drops to an exchange"),
        (
            "x-single-active-consumer",
            "have a single active consumer; one process at a time is a .reader(..) anyway",
        ),
    ];
    let not = match spec.queue_type {
        QueueType::Classic => 0,
        QueueType::Quorum => 2,
        QueueType::Stream => arguments.len(),
    };
    let flags = flags.iter().filter(|(set, _)| *set && not > 0).map(|(_, what)| *what);
    let asked = arguments[..not].iter().filter(|(argument, _)| spec.has(argument));
    let mut wrong = flags.chain(asked.map(|(_, what)| *what));
    if let Some(what) = wrong.next() {
        let (name, kind) = (&spec.name, spec.queue_type.word());
        let form = if spec.queue_type == QueueType::Stream {
            "a stream"
        } else {
            "a quorum queue"
        };
        return Some(format!(
            "queue `{name}` is set to be of type {kind}, and {form} cannot {what}: leave one of them out"
        ));
    }
    if spec.transactional && spec.queue_type == QueueType::Stream {
        let text = format!(
            "stream `{}` is transactional, and acks move nothing in a stream: leave one of them out",
            spec.name
        );
        return Some(text);
    }
    if spec.has("x-delivery-limit") && spec.queue_type != QueueType::Quorum {
        return Some(format!(
            "queue `{}` is of type {}, and only quorum queues have a delivery limit: add .quorum(), or leave the limit to the retry \
             policy",
            spec.name,
            spec.queue_type.word()
        ));
    }
    None
}

fn invalid(text: String) -> TransportError {
    TransportError::new(ErrorKind::Invalid, text)
}
