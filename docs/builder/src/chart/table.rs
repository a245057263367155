//! The figures of a chart as a table, folded away below it.

use std::fmt::Write as _;

use crate::html::Text;

/// A table that opens by a click or a key.
pub(crate) fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let mut html = String::from(
        "<details class=\"figures\"><summary>Show as a table</summary><div class=\"table-wrapper\"><table><thead><tr>",
    );
    for cell in head {
        let _ = write!(html, "<th scope=\"col\">{}</th>", Text(cell));
    }
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let (tag, scope) = if column == 0 {
                ("th", " scope=\"row\"")
            } else {
                ("td", "")
            };
            let _ = write!(html, "<{tag}{scope}>{}</{tag}>", Text(cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div></details>\n");
    html
}
