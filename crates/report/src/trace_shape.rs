//! Trace shape, of `/v1/breakdown/trace-shape`, as text.

use render::table::TextTable;
use render::terminal::{Terminal, TextStyle};
use render::text::escape_control;
use render::time::format_ns;
use serde_json::Value;

use crate::document::reader::DocumentReader;
use crate::error::Result;

/// The numbers of traces, and a table of the operations that grew most, at most `top`.
pub fn trace_shape_text(answer: &Value, top: usize, terminal: &Terminal) -> Result<String> {
    let document = DocumentReader::new(answer);
    let side = |name: &str| -> Result<(u64, u64)> {
        let side = document.get(name);
        Ok((side.get("stored").count()?, side.get("exemplars").count()?))
    };
    let (inside, outside) = (side("inside")?, side("outside")?);
    let selector = escape_control(document.get("selector").text()?);
    let mut text = terminal.paint(TextStyle::Heading, &selector);
    text.push_str(&format!(
        "\n  inside   {} of {} traces of exemplars are stored\n  outside  {} of {}\n",
        inside.0, inside.1, outside.0, outside.1
    ));
    let columns = [
        ("operation", false),
        ("self time inside", true),
        ("95 %", true),
        ("outside", true),
        ("95 %", true),
    ];
    let (mut table, mut shown) = (TextTable::new(&columns), 0);
    for operation in document.get("operations").list()?.take(top) {
        shown += 1;
        let mut row = vec![escape_control(&format!(
            "{}: {}",
            operation.get("service").text()?,
            operation.get("name").text()?
        ))];
        for side in ["inside", "outside"] {
            let of = operation.get(side);
            let end = |name: &str| -> Result<String> { Ok(format_ns(of.get(name).number()?)) };
            row.push(end("estimate")?);
            row.push(format!("{} to {}", end("lower")?, end("upper")?));
        }
        table.row(row);
    }
    if shown > 0 {
        text.push('\n');
        text.push_str(&table.text(terminal));
    } else {
        text.push_str(&format!(
            "  Self times are compared from {} stored traces of each side on.\n",
            document.get("traces_min").count()?
        ));
    }
    Ok(text)
}
