//! What is known of a series in an interval, as rows.

use collect::{Rows, graphite, statsd};
use hist::codec::header::Temporality;
use model::{Gap, Kind, Sample, Series, Value};

use crate::counters::Lost;
use crate::held::{Held, What};
use crate::interval::Interval;

/// Points that are written at once: some 200 KiB.
pub(crate) const POINTS_MAX: usize = 1 << 14;

/// Writes a series' values of `[start, end)`.
pub(crate) fn row(
    (start, end): (i64, i64),
    key: &[u8],
    held: &mut Held,
    rows: &mut dyn Rows,
) -> model::Result<()> {
    rows.series(key, &mut || series(key))?;
    let number = |number: f64| Value::Number(number);
    match &mut held.what {
        What::Times(histogram) => {
            // Lent to the sample, and taken back: it may have to be written again.
            let value = Value::Histogram(std::mem::take(histogram));
            let sample = Sample { start, end, value };
            let written = rows.sample(&sample);
            if let Value::Histogram(lent) = sample.value {
                *histogram = lent;
            }
            written
        }
        What::Count(sum) => rows.sample(&Sample { start, end, value: number(*sum) }),
        What::Set(members) => {
            rows.sample(&Sample { start, end, value: number(members.len() as f64) })
        }
        What::Points(points) => points
            .iter()
            .try_for_each(|&(at, x)| rows.sample(&Sample { start: at, end: at, value: number(x) })),
        What::Gauge { .. } => unreachable!("BUG: a gauge is settled before it is written"),
    }
}

/// The series that a key stands for, see `interval.rs`.
fn series(key: &[u8]) -> model::Result<Series> {
    let (kind, rest) = key.split_first().expect("BUG: a key has a kind");
    let text = std::str::from_utf8(rest).expect("BUG: names are UTF-8");
    let delta = Temporality::Delta;
    let (kind, unit) = match kind {
        b'c' => (Kind::Counter(delta), ""),
        b'm' => (Kind::Histogram(delta), "ms"),
        b'd' => (Kind::Histogram(delta), ""),
        _ => (Kind::Gauge, ""),
    };
    if key[0] == b'p' {
        let (path, tags) = graphite::parts(text);
        let series = Series::new(path, kind);
        return tags.fold(series, |series, (name, value)| series.with_label(name, value)).checked();
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
        .checked()
}

/// Gaps for what was lost in an interval.
pub(crate) fn gaps(interval: &Interval, lost: &Lost, producer: u64, rows: &mut dyn Rows) {
    let Interval { start, end, .. } = *interval;
    for (reason, n) in lost.iter() {
        let reason = reason.about().to_owned();
        rows.gap(Gap { start, end, producer: Some(producer), lost: Some(n), reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, expected: &str) {
        let shown = match series(key.as_bytes()) {
            Ok(series) => format!("{series} {} {}", series.unit(), series.kind().name()),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{key}");
    }

    #[test]
    fn keys_are_series() {
        check("ca.b|", "a.b  counts");
        check("ma|env:prod,fast,:x", "a{env=\"prod\",fast=\"true\"} ms histograms");
        check("da|b:2,a:1,b:1,b:2", "a{a=\"1\",b=\"1,2\"}  histograms");
        check("sa|b:", "a  gauges");
        check("pa.b;x=1;y=2", "a.b{x=\"1\",y=\"2\"}  gauges");
        check("pa;x=1;x=2", "label \"x\" is given twice");
    }
}
