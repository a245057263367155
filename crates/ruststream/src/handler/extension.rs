//! What layers hand to the handlers under them.

use std::any::{Any, type_name};

use super::{Call, Extract, Failure, Outcome};

/// A value that a layer has set for the call, cloned: who the message is from, what was looked up for it.
///
/// A layer sets it by [`Call::extend`]. Of several values of one type, the one of the innermost layer counts. Where no layer has set
/// one, the call fails, and the text names the type. What is the same for all calls belongs in the [`State`](super::State).
///
/// # Examples
///
/// ```
/// use ruststream::handler::{Layer, Outcome, Single};
/// use ruststream::prelude::*;
///
/// #[derive(Clone)]
/// struct Tenant(String);
///
/// /// Says which tenant a message is of.
/// struct Tenants;
///
/// impl Layer for Tenants {
///     async fn call<'a, S: Send + Sync + 'static>(&'a self, call: Call<'a, S>, next: &'a impl Single<S>) -> Outcome {
///         let name = call.incoming().headers().get_str("tenant").unwrap_or("common");
///         let tenant = Tenant(name.to_owned());
///         next.call(call.extend(&tenant).call()).await
///     }
/// }
///
/// #[subscriber("orders")]
/// async fn confirm(order: u64, Extension(tenant): Extension<Tenant>) {
///     println!("order {order} of {}", tenant.0);
/// }
///
/// let app = RustStream::new(AppInfo::new("shop", "1.0.0"))
///     .with_broker(MemoryBroker::new(), |broker| {
///         broker.layer(Tenants, |broker| {
///             broker.include(confirm);
///         });
///     })
///     .build();
/// # app.check().unwrap();
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extension<T>(pub T);

impl<'a, S: Send + Sync, T: Clone + Send + Sync + 'static> Extract<'a, S> for Extension<T> {
    type Rejection = Outcome;

    async fn extract(call: Call<'a, S>) -> Result<Self, Outcome> {
        match call.extension::<T>() {
            Some(value) => Ok(Self(value.clone())),
            None => Err(Outcome::Failed(Box::new(Failure::error(format!(
                "no layer has set a `{0}` for this call: put the layer that does so around the handler, or take \
                 `Option<Extension<{0}>>`",
                type_name::<T>()
            ))))),
        }
    }
}

/// The same, where it may be missing.
impl<'a, S: Send + Sync, T: Clone + Send + Sync + 'static> Extract<'a, S> for Option<Extension<T>> {
    type Rejection = std::convert::Infallible;

    async fn extract(call: Call<'a, S>) -> Result<Self, Self::Rejection> {
        Ok(call.extension().cloned().map(Extension))
    }
}

/// A value set for a call, and those that outer layers have set.
#[derive(Clone, Copy)]
pub(super) struct Extensions<'a> {
    value: &'a (dyn Any + Send + Sync),
    outer: Option<&'a Extensions<'a>>,
}

impl<'a> Extensions<'a> {
    pub(super) fn get<T: 'static>(&self) -> Option<&'a T> {
        let mut link = Some(self);
        while let Some(Self { value, outer }) = link {
            if let Some(value) = value.downcast_ref() {
                return Some(value);
            }
            link = *outer;
        }
        None
    }
}

/// A call with one value more, as [`Call::extend`] makes it: what keeps the value in its place while the call lasts.
pub struct Extended<'a, S> {
    call: Call<'a, S>,
    extensions: Extensions<'a>,
}

impl<'a, S> Extended<'a, S> {
    pub(super) fn new(call: Call<'a, S>, value: &'a (dyn Any + Send + Sync)) -> Self {
        let outer = call.extensions;
        Self {
            call,
            extensions: Extensions { value, outer },
        }
    }

    /// The call, to be passed on.
    pub fn call<'b>(&'b self) -> Call<'b, S>
    where
        'a: 'b,
    {
        Call {
            extensions: Some(&self.extensions),
            ..self.call
        }
    }
}

impl<S> std::fmt::Debug for Extended<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extended").finish_non_exhaustive()
    }
}
