//! Conversion of aggregates to rows.

use decode::SeriesSink;
use model::{Gap, Sample, SampleValue, Series};

use crate::drop_counts::DropCounts;
use crate::flush_interval::FlushInterval;
use crate::line_format::AnyLineFormat;
use crate::series_aggregate::{AggregateValue, SeriesAggregate};

/// Points per write: about 200 KiB.
pub(crate) const POINTS_MAX: usize = 1 << 14;

/// Writes the values of a series for `[start, end)`.
pub(crate) fn write_row(
    format: &AnyLineFormat,
    (start, end): (i64, i64),
    key: &[u8],
    aggregate: &mut SeriesAggregate,
    sink: &mut dyn SeriesSink,
) -> model::Result<()> {
    sink.series(key, &mut || parse_series(format, key))?;
    let number = |number: f64| SampleValue::Number(number);
    match &mut aggregate.value {
        AggregateValue::Histogram(histogram) => {
            // The value is moved into the sample and back, because the write may be retried.
            let value = SampleValue::Histogram(std::mem::take(histogram));
            let sample = Sample { start, end, value };
            let written = sink.sample(&sample);
            if let SampleValue::Histogram(lent) = sample.value {
                *histogram = lent;
            }
            written
        }
        AggregateValue::Sum(sum) => sink.sample(&Sample { start, end, value: number(*sum) }),
        AggregateValue::Set(members) => {
            sink.sample(&Sample { start, end, value: number(members.len() as f64) })
        }
        AggregateValue::Points(points) => points
            .iter()
            .try_for_each(|&(at, x)| sink.sample(&Sample { start: at, end: at, value: number(x) })),
        AggregateValue::Last { .. } => {
            unreachable!("BUG: a gauge is resolved before it is written")
        }
    }
}

/// Series of a key: kind byte, then name; see `LineFormat`.
fn parse_series(format: &AnyLineFormat, key: &[u8]) -> model::Result<Series> {
    let (kind, name) = key.split_first().expect("BUG: a key has a kind");
    format.series(*kind, std::str::from_utf8(name).expect("BUG: names are UTF-8"))
}

/// Gaps for the values lost in an interval.
pub(crate) fn write_gaps(
    interval: &FlushInterval,
    lost: &DropCounts,
    producer: u64,
    sink: &mut dyn SeriesSink,
) {
    let FlushInterval { start, end, .. } = *interval;
    for (reason, n) in lost.iter() {
        let reason = reason.description().to_owned();
        sink.gap(Gap { start, end, producer: Some(producer), lost: Some(n), reason });
    }
}
