//! Query results in Prometheus' JSON: scalar, string, vector, matrix.

use std::fmt::{Result, Write as _};

use query::{
    FloatHistogram, LabelSet, QueryResult, QueryWarningKind, ResultData, StepGrid, StepValue,
    Stream,
};

use super::number::{write_number, write_time};
use super::{ResponseExtras, write_list};
use crate::bounded_buffer::BoundedBuffer;
use crate::document::wide_bounds_warning;
use crate::json::write_text;

/// Maximum number of reported gaps.
const GAPS_REPORTED_MAX: usize = 10;

/// Writes the data of an instant or range query.
pub(super) fn write_result(
    page: &mut BoundedBuffer,
    answer: &QueryResult,
    is_range: bool,
) -> Result {
    let kind = match &answer.data {
        ResultData::Scalar(_) | ResultData::Vector(_) | ResultData::Matrix(_) if is_range => {
            "matrix"
        }
        ResultData::Scalar(_) => "scalar",
        ResultData::Text(_) => "string",
        ResultData::Vector(_) => "vector",
        ResultData::Matrix(_) | ResultData::Points(_) => "matrix",
    };
    write!(page, "{{\"resultType\":\"{kind}\",\"result\":")?;
    let steps = answer.steps;
    match &answer.data {
        ResultData::Scalar(numbers) if is_range => {
            let points: Vec<(i64, StepValue)> = steps
                .times()
                .zip(numbers.iter().map(|number| StepValue::Number(*number)))
                .collect();
            write_list(page, [points], |page, points| {
                write_series(
                    page,
                    &LabelSet::default(),
                    points.iter().map(|(at, value)| (*at, value)),
                )
            })?;
        }
        ResultData::Scalar(numbers) => {
            write_point(
                page,
                steps.start,
                &StepValue::Number(numbers.first().copied().unwrap_or(f64::NAN)),
            )?;
        }
        ResultData::Text(text) => {
            page.write_char('[')?;
            write_time(page, steps.start)?;
            page.write_char(',')?;
            write_text(page, text)?;
            page.write_char(']')?;
        }
        ResultData::Vector(streams) if !is_range => {
            write_list(page, streams, |page, stream| write_sample(page, stream, steps))?;
        }
        ResultData::Vector(streams) | ResultData::Matrix(streams) => {
            write_list(page, streams, |page, stream| {
                let points = stream.points.iter().enumerate();
                let points =
                    points.filter_map(|(at, value)| Some((steps.time(at), value.as_ref()?)));
                write_series(page, &stream.labels, points)
            })?;
        }
        ResultData::Points(all) => {
            write_list(page, all, |page, series| {
                let readings = series.points.iter().map(|reading| (reading.time, &reading.value));
                write_series(page, &series.labels, readings)
            })?;
        }
    }
    page.write_char('}')
}

fn write_labels(page: &mut BoundedBuffer, labels: &LabelSet) -> Result {
    page.write_char('{')?;
    for (at, (name, value)) in labels.iter().enumerate() {
        if at > 0 {
            page.write_char(',')?;
        }
        write_text(page, name)?;
        page.write_char(':')?;
        write_text(page, value)?;
    }
    page.write_char('}')
}

/// A series of an instant query.
fn write_sample(page: &mut BoundedBuffer, stream: &Stream, steps: StepGrid) -> Result {
    page.write_str("{\"metric\":")?;
    write_labels(page, &stream.labels)?;
    if let Some(value) = stream.points.first().and_then(Option::as_ref) {
        let name = if value.is_distribution() { "histogram" } else { "value" };
        write!(page, ",\"{name}\":")?;
        write_point(page, steps.start, value)?;
    }
    page.write_char('}')
}

/// A series of a range query: `values` and `histograms`, each if not empty.
fn write_series<'a>(
    page: &mut BoundedBuffer,
    labels: &LabelSet,
    points: impl Iterator<Item = (i64, &'a StepValue)> + Clone,
) -> Result {
    page.write_str("{\"metric\":")?;
    write_labels(page, labels)?;
    for (name, is_distribution) in [("values", false), ("histograms", true)] {
        let mut some = points
            .clone()
            .filter(|(_, value)| value.is_distribution() == is_distribution)
            .peekable();
        if some.peek().is_some() {
            write!(page, ",\"{name}\":")?;
            write_list(page, some, |page, (time, value)| write_point(page, time, value))?;
        }
    }
    page.write_char('}')
}

fn write_point(page: &mut BoundedBuffer, time: i64, value: &StepValue) -> Result {
    page.write_char('[')?;
    write_time(page, time)?;
    page.write_char(',')?;
    match (value.number(), value.histogram()) {
        (Some(number), _) => write_number(page, number)?,
        (None, Some(histogram)) => write_histogram(page, &histogram)?,
        (None, None) => page.write_str("\"NaN\"")?,
    }
    page.write_char(']')
}

/// Buckets are `[boundary rule, lower, upper, count]`; empty ones are omitted.
fn write_histogram(page: &mut BoundedBuffer, histogram: &FloatHistogram) -> Result {
    page.write_str("{\"count\":")?;
    write_number(page, histogram.count)?;
    page.write_str(",\"sum\":")?;
    write_number(page, histogram.sum)?;
    let mut buckets = histogram.buckets().filter(|bucket| bucket.count != 0.0).peekable();
    if buckets.peek().is_some() {
        page.write_str(",\"buckets\":")?;
        write_list(page, buckets, |page, bucket| {
            let rule = match (bucket.lower_inclusive, bucket.upper_inclusive) {
                (false, true) => 0,
                (true, false) => 1,
                (false, false) => 2,
                (true, true) => 3,
            };
            write!(page, "[{rule}")?;
            for number in [bucket.lower, bucket.upper, bucket.count] {
                page.write_char(',')?;
                write_number(page, number)?;
            }
            page.write_char(']')
        })?;
    }
    page.write_char('}')
}

/// Warnings and infos of a result: notes with their positions, and gaps.
pub(super) fn warnings_and_gaps(answer: &QueryResult, text: &str) -> ResponseExtras {
    let notes = |kind| {
        let notes = answer.warnings.of_kind(kind).map(|(note, place)| {
            let (line, column) = place.line_and_column(text);
            format!("{note} ({line}:{column})")
        });
        notes.collect::<Vec<_>>()
    };
    let mut warnings = notes(QueryWarningKind::Warning);
    warnings.extend(wide_bounds_warning(answer));
    let shown = |ns: i64| {
        jiff::Timestamp::from_nanosecond(ns.into())
            .map_or_else(|_| ns.to_string(), |at| at.to_string())
    };
    for gap in answer.gaps.iter().take(GAPS_REPORTED_MAX) {
        warnings.push(format!("missing from {} to {}: {gap}", shown(gap.start), shown(gap.end)));
    }
    if let Some(more) = answer.gaps.len().checked_sub(GAPS_REPORTED_MAX).filter(|more| *more > 0) {
        warnings.push(format!("missing: {more} more gaps"));
    }
    ResponseExtras { warnings, infos: notes(QueryWarningKind::Info) }
}

/// Truncates to `limit` series, unless it is 0; returns whether there were more.
pub(super) fn truncate(answer: &mut QueryResult, limit: usize) -> bool {
    if limit == 0 {
        return false;
    }
    match &mut answer.data {
        ResultData::Vector(streams) | ResultData::Matrix(streams) if streams.len() > limit => {
            streams.truncate(limit);
            true
        }
        ResultData::Points(series) if series.len() > limit => {
            series.truncate(limit);
            true
        }
        _ => false,
    }
}
