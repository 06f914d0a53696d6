//! Exemplars of `/v1/exemplars` as text.

use render::number_formatter::NumberFormatter;
use render::table::TextTable;
use render::terminal::{Terminal, TextStyle};
use render::text::{count_text, escape_control};
use render::time::precise_time_text;
use serde_json::Value;

use crate::document::reader::DocumentReader;
use crate::error::Result;

/// The number of values, and a table of the exemplars.
pub fn exemplars_text(answer: &Value, terminal: &Terminal) -> Result<String> {
    let document = DocumentReader::new(answer);
    let numbers = NumberFormatter::new(document.get("unit").optional_text()?);
    let kept = document.get("kept").count()?;
    let selector = escape_control(document.get("selector").text()?);
    let mut text = terminal.paint(TextStyle::Heading, &selector);
    text.push_str(&format!("\n  {}\n", summary(document, kept)?));
    let columns = [
        ("time", false),
        ("value", true),
        ("stands for", true),
        ("trace", false),
        ("series", false),
        ("attributes", false),
    ];
    let mut table = TextTable::new(&columns);
    let mut shown = 0;
    for exemplar in document.get("exemplars").list()? {
        shown += 1;
        let weight = exemplar.get("weight");
        let is_maximum = exemplar.get("is_maximum").flag()?;
        let value = numbers.exact(exemplar.get("value").number()?);
        let id = exemplar.get("trace_url").optional_text()?;
        let id = id.or(exemplar.get("trace_id").optional_text()?);
        table.row(vec![
            precise_time_text(exemplar.get("time_ns").integer()?),
            if is_maximum { format!("max {value}") } else { value },
            match weight.is_null() {
                true => String::new(),
                false => NumberFormatter::new(None).estimate(weight.number()?),
            },
            escape_control(id.unwrap_or_default()),
            pairs_text(exemplar.get("labels"))?,
            pairs_text(exemplar.get("attributes"))?,
        ]);
    }
    if shown > 0 {
        text.push_str(&table.text(terminal));
    }
    if shown < kept {
        text.push_str(&format!("  {shown} of {kept} are shown, sampled by weight; see --limit\n"));
    }
    Ok(text)
}

/// `1,203 values, 2 exemplars kept since …`.
fn summary(document: DocumentReader<'_>, kept: u64) -> Result<String> {
    let count = document.get("count");
    let values = match count.is_null() {
        true => String::new(),
        false => {
            let count = count.count_bracket()?;
            let values = count_text(count.estimate, "value");
            match count.lower == count.upper {
                true => format!("{values}, "),
                false => format!("{values} ({} to {}), ", count.lower, count.upper),
            }
        }
    };
    let since = document.get("kept_from_ns").integer()?;
    let start = document.get("start_ns").integer()?;
    let exemplars = count_text(kept, "exemplar");
    Ok(match since > start {
        true => format!("{values}{exemplars} kept since {}", precise_time_text(since)),
        false => format!("{values}{exemplars} kept"),
    })
}

fn pairs_text(pairs: DocumentReader<'_>) -> Result<String> {
    let pairs = pairs.labels()?;
    let texts = pairs.iter().map(|(name, value)| format!("{name}={value}"));
    Ok(escape_control(&texts.collect::<Vec<_>>().join(" ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn exemplars_are_a_table_below_the_count() {
        let exemplar = |ns: i64, value: f64, is_maximum: bool| {
            json!({
                "time_ns": 1_794_225_600_000_000_000_i64 + ns, "value": value, "weight": 1.0,
                "is_maximum": is_maximum, "trace_id": "0af7651916cd43dd8448eb211c80319c",
                "trace_url": null, "labels": {"service": "shop"}, "attributes": {"user": "u1"},
            })
        };
        let mut answer = json!({
            "selector": "latency", "unit": "ms", "start_ns": 0, "kept": 3, "kept_from_ns": -1,
            "count": {"lower": 1200, "estimate": 1203, "upper": 1210},
            "exemplars": [exemplar(0, 1250.5, true), exemplar(-1_000_000_000, 1100.0, false)],
        });
        let terminal = Terminal::new(false);
        let text = exemplars_text(&answer, &terminal).unwrap();
        expect_test::expect![[r#"
            latency
              1,203 values (1200 to 1210), 3 exemplars kept
              time                         value  stands for  trace                             series        attributes
              2026-11-09 12:00:00Z  max 1.2505 s           1  0af7651916cd43dd8448eb211c80319c  service=shop  user=u1
              2026-11-09 11:59:59Z         1.1 s           1  0af7651916cd43dd8448eb211c80319c  service=shop  user=u1
              2 of 3 are shown, sampled by weight; see --limit
        "#]].assert_eq(&text);
        answer["count"] = json!(null);
        answer["kept_from_ns"] = json!(1_794_225_600_000_000_000_i64);
        answer["exemplars"] = json!([]);
        let text = exemplars_text(&answer, &terminal).unwrap();
        expect_test::expect![[r#"
            latency
              3 exemplars kept since 2026-11-09 12:00:00Z
              0 of 3 are shown, sampled by weight; see --limit
        "#]]
        .assert_eq(&text);
        answer["kept"] = json!("three");
        assert!(exemplars_text(&answer, &terminal).is_err());
    }
}
