//! What decoding costs, without what takes the rows.
//!
//! `cargo test -p topdeck-collect --release --test it -- --ignored --nocapture speed`

use std::time::{Duration, Instant};

use collect::Rows;
use collect::remote_write::{Version, read};
use model::{Gap, Result, Sample, Series};

const SERIES: usize = 500;
const LABELS: usize = 10;

/// Knows every series and takes every sample.
#[derive(Default)]
struct Nowhere(u64);

impl Rows for Nowhere {
    fn series(&mut self, key: &[u8], _: &mut dyn FnMut() -> Result<Series>) -> Result<()> {
        self.0 = self.0.wrapping_add(key.len() as u64);
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) -> Result<()> {
        self.0 = self.0.wrapping_add(sample.end as u64);
        Ok(())
    }

    fn gap(&mut self, _: Gap) {}
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(out: &mut Vec<u8>, number: u8, content: &[u8]) {
    out.push(number << 3 | 2);
    put_varint(out, content.len() as u64);
    out.extend(content);
}

/// Names and values of a series' labels; the first is the name's.
fn labels(series: usize) -> impl Iterator<Item = (String, String)> {
    (0..LABELS).map(move |at| match at {
        0 => ("__name__".to_owned(), format!("http_server_requests_{}_total", series / 50)),
        1 => ("instance".to_owned(), format!("10.0.{}.{}:9090", series / 256, series % 256)),
        _ => (format!("label_name_{at}"), format!("some-value-of-{at}")),
    })
}

fn sample() -> Vec<u8> {
    let mut sample = vec![1 << 3 | 1];
    sample.extend(1027.5f64.to_le_bytes());
    sample.push(2 << 3);
    put_varint(&mut sample, 1_700_000_000_000);
    sample
}

fn request_v1() -> Vec<u8> {
    let mut body = Vec::new();
    for series in 0..SERIES {
        let mut message = Vec::new();
        for (name, value) in labels(series) {
            let mut label = Vec::new();
            put_bytes(&mut label, 1, name.as_bytes());
            put_bytes(&mut label, 2, value.as_bytes());
            put_bytes(&mut message, 1, &label);
        }
        put_bytes(&mut message, 2, &sample());
        put_bytes(&mut body, 1, &message);
    }
    body
}

fn request_v2() -> Vec<u8> {
    let mut symbols = vec![String::new()];
    let mut all = Vec::new();
    for series in 0..SERIES {
        let mut refs = Vec::new();
        for text in labels(series).flat_map(|(name, value)| [name, value]) {
            let known = symbols.iter().position(|symbol| *symbol == text);
            let at = known.unwrap_or_else(|| {
                symbols.push(text);
                symbols.len() - 1
            });
            put_varint(&mut refs, at as u64);
        }
        let mut message = Vec::new();
        put_bytes(&mut message, 1, &refs);
        put_bytes(&mut message, 2, &sample());
        put_bytes(&mut message, 5, &[1 << 3, 1]);
        put_bytes(&mut all, 5, &message);
    }
    let mut body = Vec::new();
    symbols.iter().for_each(|symbol| put_bytes(&mut body, 4, symbol.as_bytes()));
    body.extend(all);
    body
}

#[test]
#[ignore = "measures, and says nothing about right or wrong"]
fn speed_of_remote_write() {
    for (version, body) in [(Version::V1, request_v1()), (Version::V2, request_v2())] {
        let mut rows = Nowhere::default();
        let once = |rows: &mut Nowhere| {
            let began = Instant::now();
            let written = read(version, &body, rows).expect("a request");
            assert_eq!(written.samples, SERIES as u64);
            began.elapsed()
        };
        let mut times: Vec<Duration> = (0..2_000).map(|_| once(&mut rows)).collect();
        times.sort();
        let each = |time: Duration| time.as_nanos() as f64 / SERIES as f64;
        println!(
            "{version:?}: {SERIES} series of {LABELS} labels in {} bytes: {:.0} ns a sample (least {:.0}), {}",
            body.len(),
            each(times[times.len() / 2]),
            each(times[0]),
            rows.0 % 10,
        );
    }
}
