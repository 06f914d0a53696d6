//! Composite value of OpenMetrics 2.0: a whole histogram or summary on one line.
//!
//! ```text
//! {count:3,sum:3.2,schema:3,zero_threshold:1e-4,zero_count:1,positive_spans:[0:2],positive_buckets:[1,1]}
//! {count:3,sum:3.2,bucket:[0.1:1,1.0:2,+Inf:3]}          gcount and gsum: a gauge histogram
//! {count:3,sum:3.2,quantile:[0.5:1,0.99:2]}
//! ```
//!
//! Fields may be in any order, each at most once. Counts of native buckets are absolute, those of
//! classic buckets cumulative. If a value has both forms, the native one is used, as of protobuf,
//! whose rules for native histograms apply (`codecs::prometheus`).
//!
//! Source: OpenMetrics 2.0, draft of 2026, sections ABNF and "Metric types".

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use codecs::prometheus::{BucketSpan, ClientHistogram, HistogramSample};
use hist::{DecodeError, Histogram};

use super::ExpositionError;
use super::classic_histogram_lines::{ClassicHistogramLines, parse_count};
use crate::decimal;
use crate::input_error::quote;

/// Names of the fields, by [`Field`]; those with `true` are lists in brackets.
pub(super) const FIELDS: [(&str, bool); 13] = [
    ("count", false),
    ("sum", false),
    ("gcount", false),
    ("gsum", false),
    ("schema", false),
    ("zero_threshold", false),
    ("zero_count", false),
    ("negative_spans", true),
    ("negative_buckets", true),
    ("positive_spans", true),
    ("positive_buckets", true),
    ("bucket", true),
    ("quantile", true),
];

#[derive(Clone, Copy)]
enum Field {
    Count,
    Sum,
    GaugeCount,
    GaugeSum,
    Schema,
    ZeroThreshold,
    ZeroCount,
    NegativeSpans,
    NegativeBuckets,
    PositiveSpans,
    PositiveBuckets,
    Bucket,
    Quantile,
}

/// Fields of a composite value as text.
#[derive(Debug)]
pub(super) struct CompositeValue<'a>([Option<&'a str>; FIELDS.len()]);

/// Values of a summary.
pub(super) struct CompositeSummary {
    pub(super) count: f64,
    pub(super) sum: f64,
    /// Quantile and value.
    pub(super) quantiles: Vec<(f64, f64)>,
}

/// The histogram is not valid, though its syntax is.
fn invalid(error: DecodeError) -> ExpositionError {
    ("a histogram", error.to_string())
}

fn number(text: &str) -> Result<f64, ExpositionError> {
    decimal::parse(text.as_bytes()).ok_or_else(|| ("a number", quote(text.as_bytes())))
}

fn integer(text: &str) -> Result<i32, ExpositionError> {
    text.parse().map_err(|_| ("an integer of 32 bits", quote(text.as_bytes())))
}

/// Items of a list, none if it is empty.
fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(move |_| !list.is_empty())
}

/// Items that are pairs, as in `[0.1:1,+Inf:3]`.
fn pairs<A, B>(
    list: &str,
    first: impl Fn(&str) -> Result<A, ExpositionError>,
    second: impl Fn(&str) -> Result<B, ExpositionError>,
) -> Result<Vec<(A, B)>, ExpositionError> {
    let pair = |item: &str| {
        let (a, b) =
            item.split_once(':').ok_or_else(|| ("a pair, as in 1:2", quote(item.as_bytes())))?;
        Ok((first(a)?, second(b)?))
    };
    items(list).map(pair).collect()
}

impl<'a> CompositeValue<'a> {
    /// Splits a value in braces into its fields; the numbers in them are not parsed.
    pub(super) fn parse(text: &'a str) -> Result<CompositeValue<'a>, ExpositionError> {
        let wrong = |expected, found: &str| Err((expected, quote(found.as_bytes())));
        let inside = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        let Some(mut rest) = inside else { return wrong("a value in braces", text) };
        let mut fields = CompositeValue(Default::default());
        loop {
            let Some((name, value)) = rest.split_once(':') else {
                return wrong("a field, as in count:3", rest);
            };
            let known = FIELDS.iter().zip(&mut fields.0).find(|(field, _)| field.0 == name);
            let Some((&(_, is_list), field)) = known else {
                return wrong("a field of a histogram or summary", name);
            };
            let (value, after) = if is_list {
                let list = value.strip_prefix('[').and_then(|list| list.split_once(']'));
                let Some((list, after)) = list else { return wrong("a list in brackets", value) };
                (list, after)
            } else {
                value.split_at(value.find(',').unwrap_or(value.len()))
            };
            if field.replace(value).is_some() {
                return wrong("each field once", name);
            }
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None if after.is_empty() => return Ok(fields),
                None => return wrong("a comma or }", after),
            }
        }
    }

    fn get(&self, field: Field) -> Option<&'a str> {
        self.0[field as usize]
    }

    fn require(&self, field: Field) -> Result<&'a str, ExpositionError> {
        let name = FIELDS[field as usize].0;
        self.get(field).ok_or_else(|| ("all fields of the value", format!("no {name}")))
    }

    /// Whether it is that of a gauge histogram.
    pub(super) fn is_gauge(&self) -> bool {
        self.get(Field::GaugeCount).is_some()
    }

    /// The values of a summary, if it is one.
    pub(super) fn summary(&self) -> Option<Result<CompositeSummary, ExpositionError>> {
        let quantiles = self.get(Field::Quantile)?;
        Some((|| {
            let count = number(self.require(Field::Count)?)?;
            let sum = number(self.require(Field::Sum)?)?;
            Ok(CompositeSummary { count, sum, quantiles: pairs(quantiles, number, number)? })
        })())
    }

    /// The histogram.
    pub(super) fn histogram(&self) -> Result<Histogram, ExpositionError> {
        let (count, sum) = match self.is_gauge() {
            true => (Field::GaugeCount, Field::GaugeSum),
            false => (Field::Count, Field::Sum),
        };
        let count = parse_count(self.require(count)?)?;
        let sum = number(self.require(sum)?)?;
        if self.get(Field::Schema).is_some() {
            return self.native(count, sum);
        }
        let buckets = pairs(self.require(Field::Bucket)?, number, parse_count)?;
        if buckets.iter().any(|bucket| bucket.0.is_nan()) {
            return Err(("a number as bound", "NaN".to_owned()));
        }
        let mut lines = ClassicHistogramLines::new(0, String::new(), Vec::new(), None);
        (lines.buckets, lines.sum, lines.count) = (buckets, Some(sum), Some(count));
        lines.histogram()
    }

    fn native(&self, count: u64, sum: f64) -> Result<Histogram, ExpositionError> {
        let (negative_span, negative_delta) =
            self.sparse_buckets(Field::NegativeSpans, Field::NegativeBuckets)?;
        let (mut positive_span, positive_delta) =
            self.sparse_buckets(Field::PositiveSpans, Field::PositiveBuckets)?;
        if negative_span.is_empty() && positive_span.is_empty() {
            // An empty span marks the message as native.
            positive_span.push(BucketSpan::default());
        }
        let message = ClientHistogram {
            sample_count: Some(count),
            sample_sum: Some(sum),
            schema: Some(integer(self.require(Field::Schema)?)?),
            zero_threshold: Some(number(self.require(Field::ZeroThreshold)?)?),
            zero_count: Some(parse_count(self.require(Field::ZeroCount)?)?),
            negative_span,
            negative_delta,
            positive_span,
            positive_delta,
            ..ClientHistogram::default()
        };
        match message.to_native().map_err(invalid)? {
            Some(HistogramSample::Integer(histogram)) => Ok(histogram),
            _ => Err(("a histogram", "a staleness marker".to_owned())),
        }
    }

    /// Spans of one sign, and the counts as the differences that a message has.
    fn sparse_buckets(
        &self,
        spans: Field,
        counts: Field,
    ) -> Result<(Vec<BucketSpan>, Vec<i64>), ExpositionError> {
        let length = |text: &str| {
            text.parse::<u32>().map_err(|_| ("a length of 32 bits", quote(text.as_bytes())))
        };
        let spans = pairs(self.get(spans).unwrap_or(""), integer, length)?;
        let spans = spans.into_iter().map(|(offset, length)| BucketSpan { offset, length });
        let mut previous = 0_i64;
        let mut difference = |text: &str| {
            let next = i64::try_from(parse_count(text)?)
                .map_err(|_| ("a count below 2^63", quote(text.as_bytes())))?;
            let difference = next.wrapping_sub(previous);
            previous = next;
            Ok(difference)
        };
        let counts = items(self.get(counts).unwrap_or("")).map(&mut difference);
        Ok((spans.collect(), counts.collect::<Result<_, ExpositionError>>()?))
    }
}
