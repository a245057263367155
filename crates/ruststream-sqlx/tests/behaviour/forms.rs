//! The other forms of a claim pass the suite as the lease does.

use ruststream::conformance::Harness;
use ruststream::transport::{Broker, TransportError};
use ruststream_sqlx::{Inbox, LockKey, SqlxConnection};

use crate::place::{Place, PlaceBroker};

/// A broker all of whose subscriptions claim in this form.
pub(crate) struct Formed {
    broker: PlaceBroker,
    form: fn(Inbox) -> Inbox,
}

impl Formed {
    pub(crate) fn new(broker: PlaceBroker, form: fn(Inbox) -> Inbox) -> Self {
        Self { broker, form }
    }
}

impl Broker for Formed {
    type Connection = SqlxConnection;
    type Source = Inbox;

    fn label(&self) -> String {
        self.broker.label()
    }

    fn source(&self, name: &str) -> Inbox {
        (self.form)(Inbox::queue(name))
    }

    fn connect(&self) -> impl Future<Output = Result<SqlxConnection, TransportError>> + Send {
        self.broker.connect()
    }
}

/// A suite for a form, with or without the checks of what ends with a lease.
macro_rules! form {
    ($module:ident, $form:expr, $leases:literal) => {
        mod $module {
            use std::time::Duration;

            use super::*;

            struct Here(Place);

            impl Harness for Here {
                type Broker = Formed;

                async fn start() -> Self {
                    Self(Place::new().await)
                }

                fn broker(&self) -> Formed {
                    Formed::new(self.0.broker(), $form)
                }

                fn leased_source(&self, name: &str, lease: Duration) -> Option<Inbox> {
                    $leases.then(|| $form(Inbox::queue(name)).lease(lease))
                }

                async fn dead_letters(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
                    let connection = self.0.broker().connect().await?;
                    let letters = connection.dead_letters().list(name, 1000).await?;
                    Ok(Some(letters.into_iter().map(|letter| letter.payload).collect()))
                }

                async fn cut(&self) -> bool {
                    self.0.cut_links().await
                }
            }

            ruststream::conformance::suite!(Here);
        }
    };
}

// Who has the lock has the message, whatever its lease.
form!(advisory, |inbox: Inbox| inbox.advisory_lock(LockKey::Id), false);
form!(settle_each, |inbox: Inbox| inbox.settle_each(), true);
form!(
    keeping,
    |inbox: Inbox| inbox.keep(std::time::Duration::from_mins(1)),
    true
);
