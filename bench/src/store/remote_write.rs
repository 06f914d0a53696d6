//! Hand-written encoder of Prometheus remote write 1.0 requests: protobuf in a Snappy block.
//!
//! It sends native histograms of schema 5 in seconds: cumulative counts, or those of one minute.
//! Fields are those of `prometheus/prompb/types.proto`.

use synthetic::{SyntheticSample, SyntheticSeries};

/// Buckets per power of two: 2^5.
const PER_DOUBLING: f64 = 32.0;
const SCHEMA: i64 = 5;
/// Gaps between buckets up to this length are sent as zeros, like Prometheus' clients do.
const GAP_MAX: usize = 2;
/// Native buckets of values from 1 us to 100 s are −638 to 213.
pub(crate) const FIRST: i64 = -640;
pub(crate) const BUCKETS: usize = 860;

/// Content of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistogramKind {
    /// All values so far, as Prometheus' clients count.
    Cumulative,
    /// The values of its minute.
    Gauge,
}

const RESET_HINT_GAUGE: u64 = 3;

/// Cumulative counts of one series.
#[derive(Clone)]
pub(crate) struct SeriesCounts {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
}

/// Native bucket of the middle of each bucket of `LogLinear10`.
pub(crate) struct BucketMap {
    first: i32,
    targets: Vec<usize>,
}

impl BucketMap {
    pub(crate) fn new() -> BucketMap {
        let first = 3 * 90;
        let to = |index: i32| {
            let edges = hist::Scheme::LogLinear10.edges(index).expect("is on the grid");
            let middle_s = (edges.0 + edges.1) / 2.0 / 1e9;
            let native = (middle_s.log2() * PER_DOUBLING).ceil() as i64;
            (native - FIRST) as usize
        };
        BucketMap { first, targets: (first..11 * 90).map(to).collect() }
    }

    /// Number of the native bucket, from 0 to [`BUCKETS`].
    pub(crate) fn target(&self, index: i32) -> usize {
        self.targets[(index - self.first) as usize]
    }
}

impl SeriesCounts {
    pub(crate) fn new() -> SeriesCounts {
        SeriesCounts { counts: vec![0; BUCKETS], count: 0, sum_ns: 0 }
    }

    /// Clears the counts: the next histogram contains only new values, like a gauge.
    pub(crate) fn reset(&mut self) {
        self.counts.fill(0);
        (self.count, self.sum_ns) = (0, 0);
    }

    pub(crate) fn add(&mut self, sample: &SyntheticSample, moved: &BucketMap) {
        for &(index, count) in &sample.buckets {
            self.counts[moved.target(index)] += count;
        }
        self.count += sample.count;
        self.sum_ns += u128::from(sample.sum_ns);
    }

    /// Native bucket indexes, with their counts, ascending; the first and last are used.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (i64, u64)> + '_ {
        let used = |&count: &u64| count > 0;
        let first = self.counts.iter().position(used).unwrap_or_default();
        let end = self.counts.iter().rposition(used).map_or(first, |last| last + 1);
        let index = move |(at, &count): (usize, &u64)| (FIRST + (first + at) as i64, count);
        self.counts[first..end].iter().enumerate().map(index)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn sum_s(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Appends `prometheus.Histogram`.
    fn put(&self, kind: HistogramKind, time_ms: i64, out: &mut Vec<u8>) {
        put_varint(out, 1 << 3, self.count);
        put_double(out, 3, self.sum_s());
        put_varint(out, 4 << 3, zigzag(SCHEMA));
        put_double(out, 5, 2f64.powi(-128));
        let (mut spans, mut deltas) = (Vec::new(), Vec::new());
        let (mut next, mut before, mut at) = (0, 0i64, 0);
        let used = |at: usize| self.counts.get(at).is_some_and(|&count| count > 0);
        while let Some(start) = (at..BUCKETS).find(|&at| used(at)) {
            let mut end = start + 1;
            while let Some(more) = (end..=end + GAP_MAX).find(|&at| used(at)) {
                end = more + 1;
            }
            let offset = start as i64 + if spans.is_empty() { FIRST } else { -next };
            spans.push((offset, end - start));
            for &count in &self.counts[start..end] {
                put_number(&mut deltas, zigzag(count as i64 - before));
                before = count as i64;
            }
            (next, at) = (end as i64, end);
        }
        for (offset, length) in spans {
            let mut span = Vec::new();
            put_varint(&mut span, 1 << 3, zigzag(offset));
            put_varint(&mut span, 2 << 3, length as u64);
            put_bytes(out, 11, &span);
        }
        if !deltas.is_empty() {
            put_bytes(out, 12, &deltas);
        }
        if kind == HistogramKind::Gauge {
            put_varint(out, 14 << 3, RESET_HINT_GAUGE);
        }
        put_varint(out, 15 << 3, time_ms as u64);
    }
}

/// A request under construction.
#[derive(Default)]
pub(crate) struct WriteRequestBuilder {
    bytes: Vec<u8>,
    series: Vec<u8>,
    part: Vec<u8>,
}

impl WriteRequestBuilder {
    /// Starts a series; labels are sorted by name.
    pub(crate) fn begin(&mut self, series: &SyntheticSeries) {
        let mut labels = vec![("__name__", series.metric)];
        labels.extend(series.labels.iter().map(|(name, value)| (*name, value.as_str())));
        self.begin_labels(&labels);
    }

    pub(crate) fn begin_labels(&mut self, labels: &[(&str, &str)]) {
        for (name, value) in labels {
            self.part.clear();
            put_bytes(&mut self.part, 1, name.as_bytes());
            put_bytes(&mut self.part, 2, value.as_bytes());
            put_bytes(&mut self.series, 1, &self.part);
        }
    }

    /// Appends a number to the current series.
    pub(crate) fn number(&mut self, value: f64, time_ms: i64) {
        self.part.clear();
        put_double(&mut self.part, 1, value);
        put_varint(&mut self.part, 2 << 3, time_ms as u64);
        put_bytes(&mut self.series, 2, &self.part);
    }

    /// Appends a histogram to the current series.
    pub(crate) fn histogram(&mut self, kind: HistogramKind, counted: &SeriesCounts, time_ms: i64) {
        self.part.clear();
        counted.put(kind, time_ms, &mut self.part);
        put_bytes(&mut self.series, 4, &self.part);
    }

    /// Ends the series.
    pub(crate) fn end(&mut self) {
        put_bytes(&mut self.bytes, 1, &self.series);
        self.series.clear();
    }

    /// Returns the body and starts another request.
    pub(crate) fn take_compressed(&mut self) -> Vec<u8> {
        let packed = snap::raw::Encoder::new().compress_vec(&self.bytes);
        self.bytes.clear();
        packed.expect("a request is smaller than 4 GiB")
    }
}

pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn put_varint(out: &mut Vec<u8>, key: u64, number: u64) {
    put_number(out, key);
    put_number(out, number);
}

pub(crate) fn put_double(out: &mut Vec<u8>, field: u64, value: f64) {
    put_number(out, field << 3 | 1);
    out.extend(value.to_le_bytes());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_number(out, field << 3 | 2);
    put_number(out, bytes.len() as u64);
    out.extend(bytes);
}

pub(crate) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

#[cfg(test)]
mod tests {
    use codecs::prometheus::RemoteHistogram;
    use synthetic::{Dataset, DatasetKind, DatasetScale};

    use super::*;

    /// Decodes the request with the codec of topdeck, which is independent of this encoder.
    #[test]
    fn a_message_holds_the_counts_and_the_sum() {
        let dataset = Dataset::new(
            DatasetKind::Disk,
            DatasetScale { minutes: 3, ..DatasetScale::full(DatasetKind::Disk) },
        );
        let (mut generator, moved) = (dataset.generator(), BucketMap::new());
        let mut counted = SeriesCounts::new();
        let mut whole = hist::Histogram::new(hist::Scheme::exp2(5).unwrap());
        for minute in 0..3 {
            let sample = generator.draw(0, minute);
            counted.add(sample, &moved);
            for (index, count) in sample.histogram().positive().iter() {
                let (lower, upper) = hist::Scheme::LogLinear10.edges(index).unwrap();
                whole.record_n((lower + upper) / 2.0 / 1e9, count);
            }
        }
        let mut bytes = Vec::new();
        counted.put(HistogramKind::Cumulative, 1234, &mut bytes);
        let message = RemoteHistogram::from_bytes(&bytes).unwrap();
        assert_eq!((message.timestamp, message.schema), (1234, 5));
        assert_eq!(message.sum, counted.sum_ns as f64 / 1e9);
        let read = message.to_sample().unwrap();
        let codecs::prometheus::HistogramSample::Integer(read) = read else { panic!("{read:?}") };
        assert_eq!(read.count(), dataset.total());
        assert_eq!(read.positive(), whole.positive());
    }
}
