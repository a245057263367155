//! Text in HTML.

use std::fmt;

/// A text as HTML shows it, in an element or in a quoted attribute.
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_neither_its_element_nor_its_attribute() {
        assert_eq!(Text("a < \"b\" & c").to_string(), "a &lt; &quot;b&quot; &amp; c");
    }
}
