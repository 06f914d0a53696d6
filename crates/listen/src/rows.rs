//! Conversion of aggregates to rows.

use collect::{RowSink, graphite, statsd};
use hist::codec::header::Temporality;
use model::{Gap, Sample, SampleValue, Series, SeriesKind};

use crate::drop_counts::DropCounts;
use crate::flush_interval::FlushInterval;
use crate::series_aggregate::{AggregateValue, SeriesAggregate};

/// Points that are written at once: some 200 KiB.
pub(crate) const POINTS_MAX: usize = 1 << 14;

/// Writes a series' values of `[start, end)`.
pub(crate) fn write_row(
    (start, end): (i64, i64),
    key: &[u8],
    held: &mut SeriesAggregate,
    rows: &mut dyn RowSink,
) -> model::Result<()> {
    rows.series(key, &mut || parse_series(key))?;
    let number = |number: f64| SampleValue::Number(number);
    match &mut held.value {
        AggregateValue::Histogram(histogram) => {
            // Lent to the sample, and taken back: it may have to be written again.
            let value = SampleValue::Histogram(std::mem::take(histogram));
            let sample = Sample { start, end, value };
            let written = rows.sample(&sample);
            if let SampleValue::Histogram(lent) = sample.value {
                *histogram = lent;
            }
            written
        }
        AggregateValue::Count(sum) => rows.sample(&Sample { start, end, value: number(*sum) }),
        AggregateValue::Set(members) => {
            rows.sample(&Sample { start, end, value: number(members.len() as f64) })
        }
        AggregateValue::Points(points) => points
            .iter()
            .try_for_each(|&(at, x)| rows.sample(&Sample { start: at, end: at, value: number(x) })),
        AggregateValue::Gauge { .. } => {
            unreachable!("BUG: a gauge is settled before it is written")
        }
    }
}

/// The series that a key stands for, see `interval.rs`.
fn parse_series(key: &[u8]) -> model::Result<Series> {
    let (kind, rest) = key.split_first().expect("BUG: a key has a kind");
    let text = std::str::from_utf8(rest).expect("BUG: names are UTF-8");
    let delta = Temporality::Delta;
    let (kind, unit) = match kind {
        b'c' => (SeriesKind::Counter(delta), ""),
        b'm' => (SeriesKind::Histogram(delta), "ms"),
        b'd' => (SeriesKind::Histogram(delta), ""),
        _ => (SeriesKind::Gauge, ""),
    };
    if key[0] == b'p' {
        let (path, tags) = graphite::path_and_tags(text);
        let series = Series::new(path, kind);
        return tags
            .fold(series, |series, (name, value)| series.with_label(name, value))
            .validate();
    }
    // A name has no bar: one ended it.
    let (name, tags) = text.split_once('|').expect("BUG: a bar ends the name");
    let mut labels: Vec<(&str, String)> = Vec::new();
    let mut tags: Vec<(&str, &str)> = statsd::tags(tags).collect();
    tags.sort_unstable();
    tags.dedup();
    for (name, value) in tags {
        // A tag may be given with several values: a label has them all.
        match labels.last_mut() {
            Some((last, values)) if *last == name => {
                values.push(',');
                values.push_str(value);
            }
            _ => labels.push((name, value.to_owned())),
        }
    }
    let series = Series::new(name, kind).with_unit(unit);
    labels
        .into_iter()
        .fold(series, |series, (name, value)| series.with_label(name, value))
        .validate()
}

/// Gaps for what was lost in an interval.
pub(crate) fn write_gaps(
    interval: &FlushInterval,
    lost: &DropCounts,
    producer: u64,
    rows: &mut dyn RowSink,
) {
    let FlushInterval { start, end, .. } = *interval;
    for (reason, n) in lost.iter() {
        let reason = reason.description().to_owned();
        rows.gap(Gap { start, end, producer: Some(producer), lost: Some(n), reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, expected: &str) {
        let shown = match parse_series(key.as_bytes()) {
            Ok(series) => format!("{series} {} {}", series.unit(), series.kind().name()),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{key}");
    }

    #[test]
    fn series_are_parsed_from_keys() {
        check("ca.b|", "a.b  counts");
        check("ma|env:prod,fast,:x", "a{env=\"prod\",fast=\"true\"} ms histograms");
        check("da|b:2,a:1,b:1,b:2", "a{a=\"1\",b=\"1,2\"}  histograms");
        check("sa|b:", "a  gauges");
        check("pa.b;x=1;y=2", "a.b{x=\"1\",y=\"2\"}  gauges");
        check("pa;x=1;x=2", "label \"x\" is given twice");
    }
}
