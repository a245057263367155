//! What an app reads and writes, for people.

/// What an app reads and writes, for people.
#[derive(Default)]
pub(super) struct Report {
    /// A line for each subscription.
    pub(super) lines: Vec<String>,
    /// Each name that is read, with the broker and the handler that reads it.
    reads: Vec<Read>,
    /// Each name that is written to, with who writes there.
    writes: Vec<(String, String)>,
}

impl Report {
    /// Notes that `handler` reads `name` on the broker of this label.
    pub(super) fn reads(&mut self, label: &str, name: &str, handler: &str) {
        self.reads.push(Read {
            broker: label.to_owned(),
            name: name.to_owned(),
            handler: handler.to_owned(),
        });
    }

    /// Notes that `who` publishes to `name`.
    pub(super) fn writes(&mut self, name: &str, who: String) {
        self.writes.push((name.to_owned(), who));
    }

    /// What may be meant so, and may be a slip.
    #[cfg_attr(not(feature = "cli"), expect(dead_code, reason = "the command line tells them"))]
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (place, Read { broker, name, handler }) in self.reads.iter().enumerate() {
            let same = |other: &&Read| other.name == *name && other.broker == *broker;
            if let Some(other) = self.reads[..place].iter().find(same) {
                notes.push(format!(
                    "`{}` and `{handler}` both read `{name}` on {broker}: unless each gets its own copy there, a message goes to one of them \
                     by chance",
                    other.handler
                ));
            }
        }
        for (name, who) in &self.writes {
            if !self.reads.iter().any(|read| may_read(&read.name, name)) {
                notes.push(format!("{who} go to `{name}`, which no handler of this app reads"));
            }
        }
        notes
    }
}

struct Read {
    broker: String,
    name: String,
    handler: String,
}

/// Whether a subscription on `read` may get what is published to `name`; a pattern may get all that begins as it does.
fn may_read(read: &str, name: &str) -> bool {
    match read.find(['*', '>', '#', '+']) {
        Some(wild) => name.starts_with(&read[..wild]),
        None => read == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_noted_and_what_is_read_is_not() {
        let mut report = Report::default();
        report.reads("memory", "receipts", "mail");
        report.reads("memory", "audit.*", "audit");
        for name in ["receipts", "audit.orders", "recipts"] {
            report.writes(name, "the replies of `confirm`".to_owned());
        }
        assert_eq!(
            report.notes(),
            ["the replies of `confirm` go to `recipts`, which no handler of this app reads"]
        );
    }

    #[test]
    fn two_readers_of_one_name_on_one_broker_are_noted() {
        let mut report = Report::default();
        report.reads("sqlite a.db", "orders", "confirm");
        report.reads("sqlite b.db", "orders", "copy");
        assert!(report.notes().is_empty());
        report.reads("sqlite a.db", "orders", "count");
        assert!(report.notes()[0].starts_with("`confirm` and `count` both read `orders` on sqlite a.db"));
    }
}
