//! Query results in Prometheus' JSON: scalar, string, vector, matrix.

use std::fmt::{Result, Write as _};

use query::{
    FloatHistogram, LabelSet, QueryResult, QueryWarningKind, ResultData, StepGrid, StepValue,
    Stream,
};

use super::bucket_texts::BucketTexts;
use super::number::{write_number, write_time};
use super::{ResponseExtras, write_list};
use crate::bounded_buffer::BoundedBuffer;
use crate::json::write_text;
use report::document::wide_bounds_warning;

/// Maximum number of reported gaps.
const GAPS_REPORTED_MAX: usize = 10;

/// Writes the data of an instant or range query.
pub(super) fn write_result(
    out: &mut BoundedBuffer,
    result: &QueryResult,
    is_range: bool,
) -> Result {
    let kind = match &result.data {
        ResultData::Scalar(_) | ResultData::Vector(_) | ResultData::Matrix(_) if is_range => {
            "matrix"
        }
        ResultData::Scalar(_) => "scalar",
        ResultData::Text(_) => "string",
        ResultData::Vector(_) => "vector",
        ResultData::Matrix(_) | ResultData::RawSamples(_) => "matrix",
    };
    write!(out, "{{\"resultType\":\"{kind}\",\"result\":")?;
    let steps = result.steps;
    let mut texts = BucketTexts::default();
    match &result.data {
        ResultData::Scalar(numbers) if is_range => {
            let points: Vec<(i64, StepValue)> = steps
                .times()
                .zip(numbers.iter().map(|number| StepValue::Number(*number)))
                .collect();
            write_list(out, [points], |out, points| {
                write_series(
                    out,
                    &LabelSet::default(),
                    points.iter().map(|(at, value)| (*at, value)),
                    &mut texts,
                )
            })?;
        }
        ResultData::Scalar(numbers) => {
            write_point(
                out,
                steps.start,
                &StepValue::Number(numbers.first().copied().unwrap_or(f64::NAN)),
                &mut texts,
            )?;
        }
        ResultData::Text(text) => {
            out.write_char('[')?;
            write_time(out, steps.start)?;
            out.write_char(',')?;
            write_text(out, text)?;
            out.write_char(']')?;
        }
        ResultData::Vector(streams) if !is_range => {
            write_list(out, streams, |out, stream| write_sample(out, stream, steps, &mut texts))?;
        }
        ResultData::Vector(streams) | ResultData::Matrix(streams) => {
            write_list(out, streams, |out, stream| {
                let points = stream.points.iter().enumerate();
                let points =
                    points.filter_map(|(at, value)| Some((steps.time(at), value.as_ref()?)));
                write_series(out, &stream.labels, points, &mut texts)
            })?;
        }
        ResultData::RawSamples(all) => {
            write_list(out, all, |out, series| {
                let samples = series.points.iter().map(|sample| (sample.time, &sample.value));
                write_series(out, &series.labels, samples, &mut texts)
            })?;
        }
    }
    out.write_char('}')
}

pub(super) fn write_labels(out: &mut BoundedBuffer, labels: &LabelSet) -> Result {
    out.write_char('{')?;
    for (at, (name, value)) in labels.iter().enumerate() {
        if at > 0 {
            out.write_char(',')?;
        }
        write_text(out, name)?;
        out.write_char(':')?;
        write_text(out, value)?;
    }
    out.write_char('}')
}

/// A series of an instant query.
fn write_sample(
    out: &mut BoundedBuffer,
    stream: &Stream,
    steps: StepGrid,
    texts: &mut BucketTexts,
) -> Result {
    out.write_str("{\"metric\":")?;
    write_labels(out, &stream.labels)?;
    if let Some(value) = stream.points.first().and_then(Option::as_ref) {
        let name = if value.is_distribution() { "histogram" } else { "value" };
        write!(out, ",\"{name}\":")?;
        write_point(out, steps.start, value, texts)?;
    }
    out.write_char('}')
}

/// A series of a range query: `values` and `histograms`, each if not empty.
fn write_series<'a>(
    out: &mut BoundedBuffer,
    labels: &LabelSet,
    points: impl Iterator<Item = (i64, &'a StepValue)> + Clone,
    texts: &mut BucketTexts,
) -> Result {
    out.write_str("{\"metric\":")?;
    write_labels(out, labels)?;
    for (name, is_distribution) in [("values", false), ("histograms", true)] {
        let mut some = points
            .clone()
            .filter(|(_, value)| value.is_distribution() == is_distribution)
            .peekable();
        if some.peek().is_some() {
            write!(out, ",\"{name}\":")?;
            write_list(out, some, |out, (time, value)| write_point(out, time, value, texts))?;
        }
    }
    out.write_char('}')
}

fn write_point(
    out: &mut BoundedBuffer,
    time: i64,
    value: &StepValue,
    texts: &mut BucketTexts,
) -> Result {
    out.write_char('[')?;
    write_time(out, time)?;
    out.write_char(',')?;
    match (value.number(), value.histogram()) {
        (Some(number), _) => write_number(out, number)?,
        (None, Some(histogram)) => write_histogram(out, &histogram, texts)?,
        (None, None) => out.write_str("\"NaN\"")?,
    }
    out.write_char(']')
}

/// Buckets are `[boundaries, lower, upper, count]`; empty ones are omitted.
fn write_histogram(
    out: &mut BoundedBuffer,
    histogram: &FloatHistogram,
    texts: &mut BucketTexts,
) -> Result {
    out.write_str("{\"count\":")?;
    write_number(out, histogram.count)?;
    out.write_str(",\"sum\":")?;
    write_number(out, histogram.sum)?;
    let mut buckets = histogram.buckets().filter(|bucket| bucket.count != 0.0).peekable();
    if buckets.peek().is_some() {
        out.write_str(",\"buckets\":")?;
        write_list(out, buckets, |out, bucket| {
            out.write_char('[')?;
            out.write_str(texts.bounds(&bucket))?;
            out.write_char(',')?;
            write_number(out, bucket.count)?;
            out.write_char(']')
        })?;
    }
    out.write_char('}')
}

/// Warnings and infos of a result with their positions, and gaps.
pub(super) fn warnings_and_gaps(result: &QueryResult, text: &str) -> ResponseExtras {
    let notes = |kind| {
        let notes = result.warnings.of_kind(kind).map(|(note, span)| {
            let (line, column) = span.line_and_column(text);
            format!("{note} ({line}:{column})")
        });
        notes.collect::<Vec<_>>()
    };
    let mut warnings = notes(QueryWarningKind::Warning);
    warnings.extend(wide_bounds_warning(result));
    let time_text = |ns: i64| {
        jiff::Timestamp::from_nanosecond(ns.into())
            .map_or_else(|_| ns.to_string(), |at| at.to_string())
    };
    for gap in result.gaps.iter().take(GAPS_REPORTED_MAX) {
        warnings.push(format!(
            "missing from {} to {}: {gap}",
            time_text(gap.start),
            time_text(gap.end)
        ));
    }
    if let Some(more) = result.gaps.len().checked_sub(GAPS_REPORTED_MAX).filter(|more| *more > 0) {
        warnings.push(format!("missing: {more} more gaps"));
    }
    ResponseExtras { warnings, infos: notes(QueryWarningKind::Info) }
}

/// Truncates to `limit` series, unless it is 0; returns whether there were more.
pub(super) fn truncate(result: &mut QueryResult, limit: usize) -> bool {
    if limit == 0 {
        return false;
    }
    match &mut result.data {
        ResultData::Vector(streams) | ResultData::Matrix(streams) if streams.len() > limit => {
            streams.truncate(limit);
            true
        }
        ResultData::RawSamples(series) if series.len() > limit => {
            series.truncate(limit);
            true
        }
        _ => false,
    }
}
