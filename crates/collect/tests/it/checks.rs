//! What must hold for any input at all: one check per fuzz target, by its name. `fuzz/` includes this file by
//! path, and `fuzzed` repeats the checks on inputs that once broke something.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;

use collect::influx::Precision;
use collect::remote_write::{self, Version};
use collect::{
    Format, Reading, RowsKept, Sink, Trouble, Unit, Value, detect, prometheus_protobuf, read,
};
use collect::{graphite, influx, statsd};

/// Panics where something broke.
pub(crate) type Check = fn(&[u8]);

/// Name and check of each target of `fuzz/` for a source.
pub(crate) const CHECKS: [(&str, Check); 12] = [
    ("read_numbers", |bytes| reads(Format::Numbers, bytes)),
    ("read_hlog", |bytes| reads(Format::Hlog, bytes)),
    ("read_circllhist", |bytes| reads(Format::Circllhist, bytes)),
    ("read_httptrap", |bytes| reads(Format::Httptrap, bytes)),
    ("read_prometheus", |bytes| reads(Format::Prometheus, bytes)),
    ("read_frames", |bytes| reads(Format::Frames, bytes)),
    ("detect", detects),
    ("statsd", statsd),
    ("graphite", graphite),
    ("influx", influx),
    ("remote_write", remote_writes),
    ("prometheus_protobuf", scrapes),
];

/// Whatever the format is taken for can be read.
fn detects(bytes: &[u8]) {
    match detect(bytes) {
        Ok(format) => reads(format, bytes),
        Err(trouble) => assert!(!trouble.to_string().contains('\n'), "a message of one line"),
    }
    // A first look does not have to see all.
    let _ = detect(&bytes[..bytes.len() / 2]);
}

/// What is counted as written is what there is, in series and samples that a batch takes.
fn remote_writes(bytes: &[u8]) {
    const BYTES_MAX: usize = 1 << 20;
    let opened = remote_write::decompress(bytes, BYTES_MAX).unwrap_or_default();
    assert!(opened.len() <= BYTES_MAX);
    for body in [bytes, &opened] {
        for version in [Version::V1, Version::V2] {
            let mut rows = RowsKept::default();
            let Ok(written) = remote_write::read(version, body, &mut rows) else { continue };
            assert_eq!(written.samples + written.histograms, rows.rows.len() as u64);
            assert_eq!(written.refused == 0, written.troubles.is_empty());
            let mut batch = model::BatchWriter::default();
            for (series, sample) in &rows.rows {
                batch.series(series);
                batch.sample(sample).expect("its start is not after its end");
            }
            let batch = batch.finish();
            assert_eq!(model::Batch::check(batch.bytes().to_owned()), Ok(batch));
        }
    }
}

fn scrapes(bytes: &[u8]) {
    let mut found = Found::default();
    prometheus_protobuf::read(bytes, &mut found);
}

/// The same is found however the input is cut into pieces, and every histogram can be asked.
fn reads(format: Format, bytes: &[u8]) {
    for unit in [None, Some(&Unit::Hours)] {
        let whole = found(format, &mut &bytes[..], unit);
        let in_pieces = found(format, &mut BufReader::with_capacity(7, bytes), unit);
        assert_eq!(whole, in_pieces, "read in pieces");
    }
}

fn found(format: Format, input: &mut dyn BufRead, unit: Option<&Unit>) -> Vec<String> {
    let mut found = Found::default();
    read(format, input, unit, &mut found).expect("reading memory does not fail");
    found.0
}

/// Everything found, as text: numbers that are NaN are equal there.
#[derive(Default)]
struct Found(Vec<String>);

impl Sink for Found {
    fn number(&mut self, value: f64) {
        self.0.push(format!("{value:e}"));
    }

    fn reading(&mut self, reading: Reading) {
        if let Value::Histogram(histogram) = &reading.value {
            let held: u64 = histogram.cells().map(|cell| cell.count).sum();
            assert_eq!(held, histogram.count());
            assert_eq!(histogram.quantile(0.5).is_none(), histogram.is_empty());
            let sum = histogram.sum();
            assert!(sum.lower <= sum.upper, "{sum:?}");
        }
        self.0.push(format!("{reading:?}"));
    }

    fn skipped(&mut self, what: &'static str) {
        self.0.push(what.to_owned());
    }

    fn trouble(&mut self, trouble: Trouble) -> ControlFlow<()> {
        let message = trouble.to_string();
        assert!(!message.contains('\n'), "a message of one line");
        self.0.push(message);
        ControlFlow::Continue(())
    }
}

/// What is found in a packet is what is found in its lines, and numbers are finite.
fn statsd(bytes: &[u8]) {
    let mut whole = Vec::new();
    statsd::packet(bytes, |found| whole.push(found.map_err(|trouble| trouble.found)));
    let lines = bytes.split(|&byte| byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines: Vec<_> = lines
        .filter(|line| !line.is_empty())
        .map(|line| statsd::line(1, line).map_err(|trouble| trouble.found))
        .collect();
    assert_eq!(whole.len(), lines.len());
    for found in lines.into_iter().flatten() {
        let statsd::Found::Metric(metric) = found else { continue };
        assert!(!metric.name.is_empty() && (statsd::RATE_MIN..=1.0).contains(&metric.rate));
        assert!(statsd::tags(metric.tags).all(|(name, _)| !name.is_empty()));
        assert!(metric.time.is_none_or(|time| time >= 0));
        let values: Vec<_> = metric.values().collect();
        assert!(!values.is_empty() && values.len() <= bytes.len());
        for value in values {
            match value {
                Ok(statsd::Value::Number(x) | statsd::Value::Change(x)) => assert!(x.is_finite()),
                Ok(statsd::Value::Member(member)) => assert!(member.len() <= bytes.len()),
                Err(trouble) => one_line(&trouble.to_string()),
            }
        }
    }
}

fn graphite(bytes: &[u8]) {
    for line in bytes.split(|&byte| byte == b'\n') {
        match graphite::line(1, line, 7) {
            Ok(graphite::Found::Metric(metric)) => {
                assert!(metric.value.is_finite() && metric.time >= 0);
                let (path, tags) = graphite::parts(metric.series);
                assert!(!path.is_empty() && tags.into_iter().all(|(name, _)| !name.is_empty()));
            }
            Ok(graphite::Found::Skipped(_)) => {}
            Err(trouble) => one_line(&trouble.to_string()),
        }
    }
}

/// All that is counted is there, and nothing is longer than what it came from.
fn influx(bytes: &[u8]) {
    for precision in [Precision::Nanoseconds, Precision::Hours] {
        let mut rows = RowsKept::default();
        let placed = influx::read(bytes, precision, 7, &mut rows);
        assert_eq!(placed.readings, rows.rows.len() as u64);
        assert!(placed.readings + placed.refused <= bytes.len() as u64);
        placed.troubles.iter().for_each(|trouble| one_line(trouble));
        for (series, sample) in rows.rows {
            assert!(series.name().len() <= bytes.len());
            if let model::Value::Number(number) = sample.value {
                assert!(number.is_finite());
            }
        }
    }
}

fn one_line(message: &str) {
    assert!(!message.contains('\n'), "a message of one line");
}
