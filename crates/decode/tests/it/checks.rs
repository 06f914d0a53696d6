//! Properties that hold for any input: one check per fuzz target, with the target's name. `fuzz/`
//! includes this file by path; `fuzz_regressions` repeats the checks with inputs of past failures.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;

use ::model::{Gap, LadderCell, Sample, Series};
use decode::influx::TimestampPrecision;
use decode::remote_read::{self, MATCHERS_MAX, QUERIES_MAX};
use decode::remote_write::{self, RemoteWriteVersion};
use decode::spans::trace::{self, AttributeAction, RawSpan, Trace};
use decode::{
    DecodedSample, DecodedValue, InputError, InputFormat, SampleSink, SeriesSink, Unit,
    VecSeriesSink, collectd, detect, graphite, influx, otlp, prometheus_protobuf, read, spans,
    statsd, tsdb,
};

/// Panics if the property is violated.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each fuzz target of a decoder.
pub(crate) const CHECKS: [(&str, FuzzCheck); 18] = [
    ("read_numbers", |bytes| check_format(InputFormat::Numbers, bytes)),
    ("read_hlog", |bytes| check_format(InputFormat::Hlog, bytes)),
    ("read_circllhist", |bytes| check_format(InputFormat::Circllhist, bytes)),
    ("read_ddsketch", |bytes| check_format(InputFormat::Ddsketch, bytes)),
    ("read_httptrap", |bytes| check_format(InputFormat::Httptrap, bytes)),
    ("read_prometheus", |bytes| check_format(InputFormat::Prometheus, bytes)),
    ("read_frames", |bytes| check_format(InputFormat::Frames, bytes)),
    ("read_otlp", check_otlp),
    ("read_spans", check_spans),
    ("detect", check_detection),
    ("remote_write", check_remote_write),
    ("remote_read", check_remote_read),
    ("prometheus_protobuf", check_scrape),
    ("statsd", check_statsd),
    ("graphite", check_graphite),
    ("collectd", check_collectd),
    ("influx", check_influx),
    ("tsdb", check_tsdb),
];

/// The detected format's decoder accepts the input without a panic.
fn check_detection(bytes: &[u8]) {
    match detect(bytes) {
        Ok(format) => check_format(format, bytes),
        Err(error) => assert!(!error.to_string().contains('\n'), "a message of one line"),
    }
    // Detection on a prefix may give another result.
    let _ = detect(&bytes[..bytes.len() / 2]);
}

/// A request is within its limits.
fn check_remote_read(bytes: &[u8]) {
    let Ok(queries) = remote_read::read_request(bytes) else { return };
    assert!(queries.len() <= QUERIES_MAX);
    assert!(queries.iter().all(|query| query.matchers.len() <= MATCHERS_MAX));
}

/// The counts equal the written rows, and a batch accepts the series and samples.
fn check_remote_write(bytes: &[u8]) {
    const BYTES_MAX: usize = 1 << 20;
    let opened = remote_write::decompress(bytes, BYTES_MAX).unwrap_or_default();
    assert!(opened.len() <= BYTES_MAX);
    for body in [bytes, &opened] {
        for version in [RemoteWriteVersion::V1, RemoteWriteVersion::V2] {
            let mut rows = VecSeriesSink::default();
            let Ok(written) = remote_write::read_request(version, body, &mut rows) else {
                continue;
            };
            assert_eq!(written.samples + written.histograms, rows.rows.len() as u64);
            assert_eq!(written.rejected == 0, written.errors.is_empty());
            let mut batch = model::BatchWriter::default();
            for (series, sample) in &rows.rows {
                batch.series(series);
                batch.sample(sample).expect("the start is not after the end");
            }
            let batch = batch.finish();
            assert_eq!(model::Batch::decode(batch.bytes().to_owned()), Ok(batch));
        }
    }
}

/// Any bytes as the parts of an index.
fn check_tsdb_index(bytes: &[u8]) {
    let contents = bytes.len().saturating_sub(tsdb::INDEX_CONTENTS_BYTES);
    let size = bytes.len() as u64;
    if let Ok(found) = tsdb::IndexSections::parse(bytes, &bytes[contents..], size) {
        for (start, end) in [found.symbols, found.series] {
            assert!(start <= end && end <= size, "{found:?}");
        }
    }
    // A table with the right checksum, and a series beside it.
    let (table, series) = bytes.split_at(bytes.len() / 2);
    let mut symbols = (table.len() as u32).to_be_bytes().to_vec();
    symbols.extend_from_slice(table);
    symbols.extend_from_slice(&crc32c::crc32c(table).to_be_bytes());
    let Ok(symbols) = tsdb::SymbolTable::parse(symbols, 5) else { return };
    let Some(length) = u8::try_from(series.len()).ok().filter(|length| *length < 128) else {
        return;
    };
    let entry = [&[length], series, &crc32c::crc32c(series).to_be_bytes()].concat();
    if length > 0 {
        assert_eq!(tsdb::series_size(&entry, 16), Ok(entry.len()));
    }
    if let Ok(found) = tsdb::IndexSeries::parse(&entry, 16, &symbols) {
        assert!(2 * found.labels.len() + 3 * found.chunks.len() <= series.len(), "{found:?}");
    }
}

/// Any bytes as a file of a block; and as the data of a chunk with the right checksum, whose counts
/// equal the written rows.
fn check_tsdb(bytes: &[u8]) {
    let _ = tsdb::Tombstones::parse(bytes);
    let _ = tsdb::check_segment_header(bytes);
    check_tsdb_index(bytes);
    let Some(length) = bytes.len().checked_sub(1).filter(|length| *length < 128) else { return };
    let checksum = crc32c::crc32c(bytes).to_be_bytes();
    let chunk = [&[length as u8], bytes, &checksum].concat();
    assert_eq!(tsdb::chunk_size(&chunk, 0), Ok(chunk.len()));
    let Ok(chunk) = tsdb::BlockChunk::parse(&chunk, 0) else { return };
    let labels = vec![(&b"__name__"[..], &b"a"[..])];
    let series = tsdb::IndexSeries { reference: 0, labels, chunks: Vec::new() };
    let mut rows = VecSeriesSink::default();
    let mut writer = tsdb::BlockRowWriter::new(&mut rows, &[]);
    let _ = writer.write_chunk(&series, &chunk, &tsdb::DeletedRanges::default());
    let written = writer.summary().samples + writer.summary().histograms;
    assert_eq!(written, rows.rows.len() as u64);
}

fn check_scrape(bytes: &[u8]) {
    let mut found = TextSink::default();
    prometheus_protobuf::read_scrape(bytes, &mut found);
}

/// The result is independent of how the input is split, and every histogram can be queried.
fn check_format(format: InputFormat, bytes: &[u8]) {
    for unit in [None, Some(&Unit::Hours)] {
        let whole = decode_all(format, &mut &bytes[..], unit);
        let in_pieces = decode_all(format, &mut BufReader::with_capacity(7, bytes), unit);
        assert_eq!(whole, in_pieces, "read in pieces");
    }
}

fn decode_all(format: InputFormat, input: &mut dyn BufRead, unit: Option<&Unit>) -> Vec<String> {
    let mut found = TextSink::default();
    read(format, input, unit, &mut found).expect("reading from memory does not fail");
    found.0
}

/// Decoded samples as text, so that NaN equals NaN.
#[derive(Default)]
struct TextSink(Vec<String>);

impl SampleSink for TextSink {
    fn number(&mut self, value: f64) {
        self.0.push(format!("{value:e}"));
    }

    fn sample(&mut self, reading: DecodedSample) {
        if let DecodedValue::Histogram(histogram) = &reading.value {
            let total: u64 = histogram.cells().map(|cell| cell.count).sum();
            assert_eq!(total, histogram.count());
            assert_eq!(histogram.quantile(0.5).is_none(), histogram.is_empty());
            let sum = histogram.sum();
            assert!(sum.lower <= sum.upper, "{sum:?}");
        }
        self.0.push(format!("{reading:?}"));
    }

    fn skipped(&mut self, what: &'static str) {
        self.0.push(what.to_owned());
    }

    fn error(&mut self, error: InputError) -> ControlFlow<()> {
        let message = error.to_string();
        assert!(!message.contains('\n'), "a message of one line");
        self.0.push(message);
        ControlFlow::Continue(())
    }
}

/// In both encodings: a key identifies one series, and the counts equal the written rows.
fn check_otlp(bytes: &[u8]) {
    for read in [otlp::read_protobuf, otlp::read_json] {
        let mut rows = KeyedSeries::default();
        let Ok(summary) = read(bytes, 1, &mut rows) else { continue };
        assert!(rows.samples >= summary.points, "a summary has several");
        assert!(summary.errors.iter().all(|error| !error.contains('\n')), "of one line");
        assert_eq!(summary.rejected == 0, summary.errors.is_empty());
    }
}

fn check_spans(bytes: &[u8]) {
    for read in [spans::read_otlp_protobuf, spans::read_otlp_json, spans::read_zipkin] {
        let mut rows = KeyedSeries::default();
        let Ok(summary) = read(bytes, &mut rows) else { continue };
        assert!(rows.samples <= 2 * summary.measured, "a histogram and a counter");
        assert!(rows.samples > 0 || summary.measured == 0);
        assert!(summary.errors.iter().all(|error| !error.contains('\n')), "of one line");
        assert_eq!(summary.rejected() == 0, summary.errors.is_empty());
        let stored = Trace::read(&rows.stored);
        assert!(stored.spans.len() as u64 <= summary.measured + summary.rejected());
        check_stored_trace(&rows.stored);
    }
    check_stored_trace(bytes);
}

/// Series by key.
#[derive(Default)]
struct KeyedSeries {
    known: HashMap<Vec<u8>, Series>,
    samples: u64,
    /// Spans as they are stored.
    stored: Vec<u8>,
}

/// Any bytes are read as a stored trace, and what is read is the same in JSON and in protobuf.
fn check_stored_trace(bytes: &[u8]) {
    let read = Trace::read(bytes);
    let (json, problems) = (read.to_json(), read.problems());
    let protobuf = read.to_protobuf();
    let again = Trace::read(&protobuf);
    assert_eq!((again.to_json(), again.problems()), (json, problems));
    for span in &read.spans {
        let _ = (span.service(), span.attributes().count());
    }
}

impl SeriesSink for KeyedSeries {
    fn series(
        &mut self,
        key: &[u8],
        series: &mut dyn FnMut() -> ::model::Result<Series>,
    ) -> ::model::Result<()> {
        let made = series()?;
        let known = self.known.entry(key.to_owned()).or_insert_with(|| made.clone());
        assert_eq!(*known, made, "a key stands for one series");
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) -> ::model::Result<()> {
        assert!(sample.start <= sample.end);
        self.samples += 1;
        Ok(())
    }

    fn gap(&mut self, _: Gap) {}

    fn span(&mut self, span: &RawSpan<'_>, _root: Option<LadderCell>) {
        let filter = |name: &str, value: &dyn Fn() -> String| match name.len() % 3 {
            0 => AttributeAction::Replace(value()),
            1 => AttributeAction::Keep,
            _ => AttributeAction::Remove,
        };
        trace::encode(&[*span], &filter, &mut self.stored);
    }
}

/// Parsing a packet equals parsing its lines, and numbers are finite.
fn check_statsd(bytes: &[u8]) {
    let mut whole = Vec::new();
    statsd::for_each_line(bytes, |found| whole.push(found.map_err(|error| error.actual)));
    let lines = bytes.split(|&byte| byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines: Vec<_> = lines
        .filter(|line| !line.is_empty())
        .map(|line| statsd::parse_line(1, line).map_err(|error| error.actual))
        .collect();
    assert_eq!(whole.len(), lines.len());
    for found in lines.into_iter().flatten() {
        let statsd::StatsdLine::Metric(metric) = found else { continue };
        assert!(!metric.name.is_empty() && (statsd::RATE_MIN..=1.0).contains(&metric.rate));
        assert!(statsd::tags(metric.tags).all(|(name, _)| !name.is_empty()));
        assert!(metric.time.is_none_or(|time| time >= 0));
        let values: Vec<_> = metric.values().collect();
        assert!(!values.is_empty() && values.len() <= bytes.len());
        for value in values {
            match value {
                Ok(statsd::StatsdValue::Number(x) | statsd::StatsdValue::Delta(x)) => {
                    assert!(x.is_finite())
                }
                Ok(statsd::StatsdValue::Member(member)) => assert!(member.len() <= bytes.len()),
                Err(error) => check_one_line(&error.to_string()),
            }
        }
    }
}

/// Values have a place, a time and a number; damage is one line.
fn check_collectd(bytes: &[u8]) {
    let parts = match collectd::split_signature(bytes) {
        Ok((signature, parts)) => {
            assert!(signature.is_none_or(|it| it.hmac.len() == 32 && it.signed.ends_with(parts)));
            parts
        }
        Err(error) => return check_one_line(&error),
    };
    let mut count = 0;
    let outcome = collectd::read_parts(parts, &mut |value| {
        count += 1;
        let (at, of) = value.position;
        assert!(at < of && value.time > 0 && !value.number.as_f64().is_nan());
        assert_eq!(value.name().is_some(), of > 1);
    });
    // A value has 9 bytes.
    assert!(count <= bytes.len() / 9);
    if let Err(error) = outcome {
        check_one_line(&error);
    }
}

fn check_graphite(bytes: &[u8]) {
    for line in bytes.split(|&byte| byte == b'\n') {
        match graphite::parse_line(1, line, 7) {
            Ok(graphite::GraphiteLine::Metric(metric)) => {
                assert!(metric.value.is_finite() && metric.time >= 0);
                let (path, tags) = graphite::path_and_tags(metric.series);
                assert!(!path.is_empty() && tags.into_iter().all(|(name, _)| !name.is_empty()));
            }
            Ok(graphite::GraphiteLine::Skipped(_)) => {}
            Err(error) => check_one_line(&error.to_string()),
        }
    }
}

/// The counts equal the written rows, and no text is longer than its source.
fn check_influx(bytes: &[u8]) {
    for precision in [TimestampPrecision::Nanoseconds, TimestampPrecision::Hours] {
        let mut rows = VecSeriesSink::default();
        let placed = influx::read_lines(bytes, precision, 7, &mut rows);
        assert_eq!(placed.samples, rows.rows.len() as u64);
        assert!(placed.samples + placed.rejected <= bytes.len() as u64);
        placed.errors.iter().for_each(|error| check_one_line(error));
        for (series, sample) in rows.rows {
            assert!(series.name().len() <= bytes.len());
            if let ::model::SampleValue::Number(number) = sample.value {
                assert!(number.is_finite());
            }
        }
    }
}

fn check_one_line(message: &str) {
    assert!(!message.contains('\n'), "a message of one line");
}
