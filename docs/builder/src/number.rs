//! Numbers as people read them.

/// A number of messages, instructions or allocations: `44,796`, `12.6`, `0.016`, `0`.
///
/// From a hundred on without decimals, below with one, and a small one with its first digit that is not 0.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        1.0.. => 1,
        0.0005.. => 3,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = part.trim_end_matches('0');
    let grouped = grouped(whole);
    if part.is_empty() {
        grouped
    } else {
        format!("{grouped}.{part}")
    }
}

/// A round number in few characters: `950`, `15 k`, `1.25 M`.
pub(crate) fn short(value: f64) -> String {
    let part = |value: f64| {
        format!("{value:.2}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    };
    match value {
        1e6.. => format!("{} M", part(value / 1e6)),
        1e3.. => format!("{} k", part(value / 1e3)),
        _ => number(value),
    }
}

fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (at, c) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped_and_small_ones_keep_their_first_digit() {
        let shown = [154_299.4, 100.4, 12.56, 33.0, 0.016, 0.0, 1_000_000.0].map(number);
        assert_eq!(shown, ["154,299", "100", "12.6", "33", "0.016", "0", "1,000,000"]);
        assert_eq!([950.0, 15_000.0, 1_250_000.0].map(short), ["950", "15 k", "1.25 M"]);
    }
}
