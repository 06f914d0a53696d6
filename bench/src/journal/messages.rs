//! Messages of the journal comparisons: lines of a metrics agent, each of exactly 100 bytes.
//!
//! They vary like real lines: hosts, metrics and routes repeat, values rarely do, timestamps
//! increase. So they compress, but not completely: batches of 64 KiB compress to three tenths with
//! LZ4 and to less than two tenths with zstd 1 (`cargo test` checks both).

use std::fmt::Write as _;

use crate::data::BenchRng;

/// Bytes of a message.
pub(crate) const SIZE: usize = 100;

const SEED: u64 = 0x6a6f_7572;
const HOSTS: usize = 100;
const REQUESTS: usize = 1_000_000_000;
const METRICS: [&str; 6] = [
    "api.request.latency_ms",
    "api.request.latency_ms",
    "api.response.size_bytes",
    "db.query.latency_ms",
    "cache.lookup.latency_us",
    "queue.wait.latency_ms",
];
const ROUTES: [&str; 8] =
    ["/cart", "/cart/items", "/checkout", "/search", "/login", "/product", "/orders", "/health"];
const CODES: [u32; 4] = [200, 200, 200, 404];
const FIRST_TIME_MS: u64 = 1_732_219_384_123;

/// Concatenated messages.
pub(crate) struct Messages {
    bytes: Vec<u8>,
}

impl Messages {
    pub(crate) fn new(count: usize) -> Messages {
        let mut random = BenchRng::new(SEED);
        let mut bytes = Vec::with_capacity(count * SIZE);
        let mut line = String::new();
        let mut time_ms = FIRST_TIME_MS;
        for _ in 0..count {
            line.clear();
            write_line(&mut line, &mut random, &mut time_ms);
            let from = bytes.len();
            bytes.extend(line.as_bytes().iter().take(SIZE));
            bytes.resize(from + SIZE, b' ');
        }
        Messages { bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / SIZE
    }

    /// The first `count` messages.
    pub(crate) fn first(&self, count: usize) -> &[u8] {
        &self.bytes[..count * SIZE]
    }

    /// A message by index, modulo the number of messages.
    pub(crate) fn one(&self, index: usize) -> &[u8] {
        let at = index % self.len() * SIZE;
        &self.bytes[at..at + SIZE]
    }
}

fn write_line(line: &mut String, random: &mut BenchRng, time_ms: &mut u64) {
    let mut below = |count: usize| (random.next_u64() % count as u64) as usize;
    let (host, request, step) = (below(HOSTS), below(REQUESTS), below(2));
    let (metric, route) = (METRICS[below(METRICS.len())], ROUTES[below(ROUTES.len())]);
    let code = CODES[below(CODES.len())];
    let value = random.lognormal(12.0, 1.0);
    *time_ms += step as u64;
    let _ = write!(
        line,
        "web{host:03} {metric}{{route=\"{route}\",code={code},req={request:09},az=1}} {value:.2} \
         {time_ms}"
    );
}

/// Compressed share of batches of 64 KiB with LZ4 and with zstd 1.
pub(crate) fn ratios(messages: &Messages) -> (f64, f64) {
    const BATCH: usize = 64 << 10;
    const LEVEL: i32 = 1;
    let (mut raw, mut lz4, mut zstd) = (0, 0, 0);
    for batch in messages.first(messages.len().min(100_000)).chunks(BATCH) {
        raw += batch.len();
        lz4 += lz4_flex::compress(batch).len();
        zstd += zstd::bulk::compress(batch, LEVEL).expect("memory takes all bytes").len();
    }
    (lz4 as f64 / raw as f64, zstd as f64 / raw as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_compress_as_real_lines_do() {
        let messages = Messages::new(20_000);
        let (lz4, zstd) = ratios(&messages);

        assert!((0.27..0.35).contains(&lz4), "{lz4}");
        assert!((0.14..0.20).contains(&zstd), "{zstd}");
    }

    #[test]
    fn lines_differ_and_fill_their_bytes() {
        let messages = Messages::new(1000);
        let lines: std::collections::BTreeSet<&[u8]> = messages.bytes.chunks_exact(SIZE).collect();
        assert_eq!(lines.len(), 1000);
        assert_eq!(messages.one(1001), messages.one(1));
    }
}
