//! Server-sent events.

use hist::Mixture;
use model::{BatchEntry, Gap, SampleValue, Series};

use crate::json::Json::{self, Integer, Null, Object, Text};
use crate::json::{integer, number};
use report::document;

fn event(name: &str, data: &Json) -> String {
    format!("event: {name}\ndata: {data:#}\n\n")
}

/// A sample of a series.
pub(super) fn sample(series: &Series, entry: &BatchEntry<'_>) -> String {
    let value = match entry.decode() {
        Ok(SampleValue::Histogram(histogram)) => {
            Object(document::distribution(&Mixture::from(*histogram)))
        }
        Ok(SampleValue::Number(plain)) if plain.is_finite() => number(plain),
        Ok(SampleValue::Number(other)) => Text(format!("{other:+}").replace("inf", "Inf")),
        Ok(SampleValue::Text(text)) => Text(text),
        Err(_) => Null,
    };
    let mut fields = document::series_fields(series);
    fields.extend([
        ("start_ns", Integer(entry.start.into())),
        ("end_ns", Integer(entry.end.into())),
        ("value", value),
    ]);
    event("sample", &Object(fields))
}

/// A gap.
pub(super) fn gap(gap: &Gap) -> String {
    event("gap", &document::gap(gap))
}

/// Journal records that are no longer available.
pub(super) fn journal_gap(gap: &journal::RecordGap) -> String {
    let (start, end) = match &gap.time {
        Some(time) => (Integer((*time.start()).into()), Integer((*time.end()).into())),
        None => (Null, Null),
    };
    let reason = format!("{} journal batches: {}", gap.records(), gap.reason);
    let fields = vec![
        ("start_ns", start),
        ("end_ns", end),
        ("producer", Null),
        ("lost", Null),
        ("reason", Text(reason)),
    ];
    event("gap", &Object(fields))
}

/// Number of events that a slow client missed.
pub(super) fn lagged(missed: u64) -> String {
    event("lagged", &Object(vec![("dropped", integer(missed))]))
}

/// The stream ends with an error.
pub(super) fn failed(reason: &str) -> String {
    event("error", &Object(vec![("error", Text(reason.to_owned()))]))
}
