//! Encoders of the formats that users send.
//!
//! Fields are those of `prometheus/prompb/types.proto` and
//! `opentelemetry/proto/metrics/v1/metrics.proto`.

use std::collections::BTreeMap;

use synthetic::{Dataset, SyntheticSeries};

use super::workload::WireFormat;
use crate::store::remote_write::{
    HistogramKind, SeriesCounts, WriteRequestBuilder, put_bytes, put_double, put_number,
    put_varint, zigzag,
};

/// Encoder of requests: series by series, each with its readings in time order.
pub(crate) trait SeriesEncoder {
    fn begin(&mut self, series: &SyntheticSeries);
    fn put(&mut self, counted: &SeriesCounts, time_ns: i64);
    fn end(&mut self);
    /// Returns the body and starts another request.
    fn take(&mut self) -> Vec<u8>;
}

pub(crate) fn encoder(format: WireFormat, dataset: &Dataset) -> Box<dyn SeriesEncoder> {
    match format {
        WireFormat::Native => Box::new(NativeEncoder::default()),
        WireFormat::Vmrange => Box::new(CounterEncoder::new(vmrange_buckets)),
        WireFormat::Classic => Box::new(CounterEncoder::new(classic_buckets)),
        WireFormat::Otlp => Box::new(OtlpEncoder::new(dataset.start_ns(0))),
    }
}

#[derive(Default)]
struct NativeEncoder {
    request: WriteRequestBuilder,
}

impl SeriesEncoder for NativeEncoder {
    fn begin(&mut self, series: &SyntheticSeries) {
        self.request.begin(series);
    }

    fn put(&mut self, counted: &SeriesCounts, time_ns: i64) {
        self.request.histogram(HistogramKind::Cumulative, counted, time_ns / 1_000_000);
    }

    fn end(&mut self) {
        self.request.end();
    }

    fn take(&mut self) -> Vec<u8> {
        self.request.take_compressed()
    }
}

/// A bucket as a label and its count.
type LabelledBuckets = fn(&SeriesCounts) -> Vec<(BucketLabel, u64)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BucketLabel {
    /// Index of VictoriaMetrics' buckets, from 10^-9.
    Vmrange(u32),
    /// Index of [`CLASSIC_BOUNDS`]; its length is +Inf.
    Le(u32),
}

/// Default bounds of Prometheus' clients, in seconds; with +Inf 12 buckets.
pub(crate) const CLASSIC_BOUNDS: [f64; 11] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const VMRANGES_PER_DECADE: f64 = 18.0;
const VMRANGE_FIRST_DECADE: f64 = -9.0;

impl BucketLabel {
    fn pair(self) -> (&'static str, String) {
        match self {
            BucketLabel::Vmrange(index) => {
                let edge = |at: u32| {
                    let decade = VMRANGE_FIRST_DECADE + f64::from(at) / VMRANGES_PER_DECADE;
                    go_exponent(10f64.powf(decade))
                };
                ("vmrange", format!("{}...{}", edge(index), edge(index + 1)))
            }
            BucketLabel::Le(index) => {
                let bound = CLASSIC_BOUNDS.get(index as usize);
                ("le", bound.map_or("+Inf".to_owned(), |bound| bound.to_string()))
            }
        }
    }
}

/// `%.3e` of Go, which writes at least two digits of the exponent.
fn go_exponent(value: f64) -> String {
    let text = format!("{value:.3e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Geometric middle of a native bucket of schema 5, in seconds.
fn middle_s(index: i64) -> f64 {
    ((index as f64 - 0.5) / 32.0).exp2()
}

fn vmrange_buckets(counted: &SeriesCounts) -> Vec<(BucketLabel, u64)> {
    let mut all: Vec<(BucketLabel, u64)> = Vec::new();
    for (index, count) in counted.buckets().filter(|&(_, count)| count > 0) {
        let at = (middle_s(index).log10() - VMRANGE_FIRST_DECADE) * VMRANGES_PER_DECADE;
        let label = BucketLabel::Vmrange(at as u32);
        match all.last_mut() {
            Some((last, sum)) if *last == label => *sum += count,
            _ => all.push((label, count)),
        }
    }
    all
}

fn classic_buckets(counted: &SeriesCounts) -> Vec<(BucketLabel, u64)> {
    let mut counts = [0; CLASSIC_BOUNDS.len() + 1];
    for (index, count) in counted.buckets() {
        counts[CLASSIC_BOUNDS.partition_point(|&bound| bound < middle_s(index))] += count;
    }
    let mut sum = 0;
    let cumulative = |(at, count): (usize, u64)| {
        sum += count;
        (BucketLabel::Le(at as u32), sum)
    };
    counts.into_iter().enumerate().map(cumulative).collect()
}

/// Histograms as one counter per bucket, with those of count and sum.
struct CounterEncoder {
    request: WriteRequestBuilder,
    buckets: LabelledBuckets,
    series: Option<SyntheticSeries>,
    /// Values by bucket; `None` is the count.
    values: BTreeMap<Option<BucketLabel>, Vec<(i64, f64)>>,
    sums: Vec<(i64, f64)>,
}

impl CounterEncoder {
    fn new(buckets: LabelledBuckets) -> CounterEncoder {
        CounterEncoder {
            request: WriteRequestBuilder::default(),
            buckets,
            series: None,
            values: BTreeMap::new(),
            sums: Vec::new(),
        }
    }

    fn write(
        request: &mut WriteRequestBuilder,
        series: &SyntheticSeries,
        suffix: &str,
        bucket: Option<BucketLabel>,
        values: &[(i64, f64)],
    ) {
        let (name, bucket) = (format!("{}{suffix}", series.metric), bucket.map(BucketLabel::pair));
        let mut labels = vec![("__name__", name.as_str())];
        labels.extend(series.labels.iter().map(|(name, value)| (*name, value.as_str())));
        labels.extend(bucket.as_ref().map(|(name, value)| (*name, value.as_str())));
        labels.sort_unstable();
        request.begin_labels(&labels);
        for &(time_ms, value) in values {
            request.number(value, time_ms);
        }
        request.end();
    }
}

impl SeriesEncoder for CounterEncoder {
    fn begin(&mut self, series: &SyntheticSeries) {
        self.series = Some(series.clone());
    }

    fn put(&mut self, counted: &SeriesCounts, time_ns: i64) {
        let time_ms = time_ns / 1_000_000;
        let buckets = (self.buckets)(counted).into_iter().map(|(label, n)| (Some(label), n));
        for (label, count) in buckets.chain([(None, counted.count())]) {
            self.values.entry(label).or_default().push((time_ms, count as f64));
        }
        self.sums.push((time_ms, counted.sum_s()));
    }

    fn end(&mut self) {
        let series = self.series.take().expect("BUG: a series was begun");
        for (bucket, values) in std::mem::take(&mut self.values) {
            let suffix = if bucket.is_some() { "_bucket" } else { "_count" };
            CounterEncoder::write(&mut self.request, &series, suffix, bucket, &values);
        }
        CounterEncoder::write(&mut self.request, &series, "_sum", None, &self.sums);
        self.sums.clear();
    }

    fn take(&mut self) -> Vec<u8> {
        self.request.take_compressed()
    }
}

/// One resource and one metric; the unit is part of its name elsewhere.
struct OtlpEncoder {
    start_ns: i64,
    metric: &'static str,
    attributes: Vec<u8>,
    points: Vec<u8>,
}

const SCALE: i64 = 5;
const CUMULATIVE: u64 = 2;

impl OtlpEncoder {
    fn new(start_ns: i64) -> OtlpEncoder {
        OtlpEncoder { start_ns, metric: "", attributes: Vec::new(), points: Vec::new() }
    }
}

fn put_attribute(field: u64, key: &str, value: &str, out: &mut Vec<u8>) {
    let (mut any, mut pair) = (Vec::new(), Vec::new());
    put_bytes(&mut any, 1, value.as_bytes());
    put_bytes(&mut pair, 1, key.as_bytes());
    put_bytes(&mut pair, 2, &any);
    put_bytes(out, field, &pair);
}

fn put_fixed(out: &mut Vec<u8>, field: u64, number: u64) {
    put_number(out, field << 3 | 1);
    out.extend(number.to_le_bytes());
}

impl SeriesEncoder for OtlpEncoder {
    fn begin(&mut self, series: &SyntheticSeries) {
        self.metric = series.metric;
        self.attributes.clear();
        for (name, value) in &series.labels {
            put_attribute(1, name, value, &mut self.attributes);
        }
    }

    fn put(&mut self, counted: &SeriesCounts, time_ns: i64) {
        // A start at or after the reading is no interval: the first reading is only a start.
        if time_ns <= self.start_ns {
            return;
        }
        let mut point = self.attributes.clone();
        put_fixed(&mut point, 2, self.start_ns as u64);
        put_fixed(&mut point, 3, time_ns as u64);
        put_fixed(&mut point, 4, counted.count());
        put_double(&mut point, 5, counted.sum_s());
        put_varint(&mut point, 6 << 3, zigzag(SCALE));
        let (mut counts, mut first) = (Vec::new(), None);
        for (index, count) in counted.buckets() {
            // Bucket i of OTLP ends where bucket i + 1 of Prometheus does.
            first.get_or_insert(index - 1);
            put_number(&mut counts, count);
        }
        let mut buckets = Vec::new();
        put_varint(&mut buckets, 1 << 3, zigzag(first.unwrap_or_default()));
        put_bytes(&mut buckets, 2, &counts);
        put_bytes(&mut point, 8, &buckets);
        put_bytes(&mut self.points, 1, &point);
    }

    fn end(&mut self) {}

    fn take(&mut self) -> Vec<u8> {
        let mut data = std::mem::take(&mut self.points);
        put_varint(&mut data, 2 << 3, CUMULATIVE);
        let mut metric = Vec::new();
        put_bytes(&mut metric, 1, self.metric.as_bytes());
        put_bytes(&mut metric, 3, b"s");
        put_bytes(&mut metric, 10, &data);
        let (mut resource, mut scope, mut whole) = (Vec::new(), Vec::new(), Vec::new());
        put_attribute(1, "service.name", "shop", &mut resource);
        put_bytes(&mut scope, 2, &metric);
        put_bytes(&mut whole, 1, &resource);
        put_bytes(&mut whole, 2, &scope);
        let mut body = Vec::new();
        put_bytes(&mut body, 1, &whole);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_buckets_are_those_of_the_clients() {
        let label = |bucket: BucketLabel| bucket.pair().1;
        assert_eq!(label(BucketLabel::Vmrange(0)), "1.000e-09...1.136e-09");
        assert_eq!(label(BucketLabel::Vmrange(9 * 18)), "1.000e+00...1.136e+00");
        let bounds = [0, 7, 11].map(|index| label(BucketLabel::Le(index)));
        assert_eq!(bounds, ["0.005", "1", "+Inf"]);
    }
}
