//! Results: scalar, string, vector, matrix.

use std::fmt::{Result, Write};

use query::{FloatHistogram, LabelSet, QueryResult, ResultData, StepGrid, StepValue, Stream};
use render::json::write_text;

use crate::bucket_texts::BucketTexts;
use crate::number::{write_number, write_number_then, write_time};

/// Writes the data of an instant or range query: the field `data` of a response.
///
/// # Errors
///
/// Those of `out`.
pub fn write_result(out: &mut dyn Write, result: &QueryResult, is_range: bool) -> Result {
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

/// Writes labels as an object.
///
/// # Errors
///
/// Those of `out`.
pub fn write_labels(out: &mut dyn Write, labels: &LabelSet) -> Result {
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
    out: &mut dyn Write,
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
    out: &mut dyn Write,
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
    out: &mut dyn Write,
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
    out: &mut dyn Write,
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
            out.write_str(texts.bounds(&bucket))?;
            write_number_then(out, bucket.count, "]")
        })?;
    }
    out.write_char('}')
}

/// Writes a list, whose items `write` writes.
///
/// # Errors
///
/// Those of `out`.
pub fn write_list<T>(
    out: &mut dyn Write,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut dyn Write, T) -> Result,
) -> Result {
    out.write_char('[')?;
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            out.write_char(',')?;
        }
        write(out, item)?;
    }
    out.write_char(']')
}
