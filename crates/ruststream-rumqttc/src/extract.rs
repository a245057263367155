//! What handlers of topics may ask for besides the message.

use std::fmt::Display;
use std::ops::Deref;
use std::str::FromStr;

use ruststream::handler::{Call, Extract, Outcome};

use crate::delivery::MessageFields;

/// The levels of the topic that the wildcards of the subscription stand for, read into types of yours.
///
/// `T` is a tuple with a part for each wildcard, in their order, each a type that is read from text (`FromStr`), or a `Vec` of one such type
/// for as many as there are; `#` is one level to it, with the slashes that are in it. A message whose levels do not fit is undecodable, and
/// the reason names the topic.
///
/// # Examples
///
/// ```
/// use ruststream::prelude::*;
/// use ruststream_rumqttc::Levels;
///
/// #[subscriber("devices/+/+/state")]
/// async fn note(state: f64, Levels((device, sensor)): Levels<(u32, String)>) {
///     println!("{sensor} of device {device}: {state}");
/// }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Levels<T>(pub T);

impl<T> Deref for Levels<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// What [`Levels`] can hold; see there.
pub trait FromLevels: Sized {
    /// Reads the levels.
    ///
    /// # Errors
    ///
    /// Why they do not fit.
    fn from_levels(levels: &[&str]) -> Result<Self, String>;
}

fn read<T: FromStr<Err: Display>>(level: &str) -> Result<T, String> {
    level.parse().map_err(|error| format!("`{level}`: {error}"))
}

impl<T: FromStr<Err: Display>> FromLevels for Vec<T> {
    fn from_levels(levels: &[&str]) -> Result<Self, String> {
        levels.iter().map(|level| read(level)).collect()
    }
}

macro_rules! tuple {
    ($($part:ident)+) => {
        impl<$($part: FromStr<Err: Display>),+> FromLevels for ($($part,)+) {
            fn from_levels(levels: &[&str]) -> Result<Self, String> {
                const COUNT: usize = [$(stringify!($part)),+].len();
                if levels.len() != COUNT {
                    return Err(format!("the handler takes {COUNT}, and the filter has {}", levels.len()));
                }
                let mut levels = levels.iter();
                Ok(($(read::<$part>(levels.next().copied().unwrap_or_default())?,)+))
            }
        }
    };
}

tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);

impl<'a, S: Send + Sync, T: FromLevels + Send> Extract<'a, S> for Levels<T> {
    type Rejection = Outcome;

    async fn extract(call: Call<'a, S>) -> Result<Self, Outcome> {
        let filter = call.source();
        let fields = call.incoming().fields::<MessageFields>();
        let Some(fields) = fields else {
            let text = format!("the levels of a topic are asked for, and `{filter}` is not read over MQTT");
            return Err(Outcome::Undecodable(text));
        };
        let topic = fields.topic();
        let levels = fields.levels(filter).unwrap_or_default();
        T::from_levels(&levels)
            .map(Self)
            .map_err(|why| Outcome::Undecodable(format!("the levels of `{topic}` do not fit: {why}")))
    }
}
