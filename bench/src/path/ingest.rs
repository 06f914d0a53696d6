//! Senders: as fast as the server answers, or at a rate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::server::PathServer;
use super::workload::{WireFormat, Workload};
use crate::clock::wall_time;
use crate::store::http::BenchConnection;
use crate::store::lockstep::{REMOTE_WRITE_HEADERS, send_in_lockstep};

/// Delay before a deferred request is sent again; senders that read `Retry-After` wait longer.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSES_MAX: u32 = 2_400;

/// Cost of an ingest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PathIngest {
    /// CPU time of the server until the last acknowledgement, and until it was settled.
    pub(crate) cpu: Duration,
    pub(crate) cpu_settled: Duration,
    pub(crate) wall: Duration,
    /// Requests answered with 429 or 503.
    pub(crate) deferred: u64,
    /// Peak resident size since the start.
    pub(crate) memory_bytes: u64,
    /// Bytes that it caused to be written to the device, until it had stopped.
    pub(crate) written_bytes: u64,
    /// Size of the data directory after the stop.
    pub(crate) disk_bytes: u64,
}

impl PathIngest {
    /// A line that [`Self::parse`] reads, for runs that find the data loaded.
    pub(crate) fn line(&self) -> String {
        let [cpu, settled, wall] =
            [self.cpu, self.cpu_settled, self.wall].map(|time| time.as_micros());
        let [deferred, memory] = [self.deferred, self.memory_bytes];
        let [written, disk] = [self.written_bytes, self.disk_bytes];
        format!("{cpu} {settled} {wall} {deferred} {memory} {written} {disk}")
    }

    pub(crate) fn parse(line: &str) -> Option<PathIngest> {
        let numbers: Vec<u64> = line.split(' ').filter_map(|text| text.parse().ok()).collect();
        let [cpu, settled, wall, deferred, memory_bytes, written_bytes, disk_bytes] = numbers[..]
        else {
            return None;
        };
        let [cpu, cpu_settled, wall] = [cpu, settled, wall].map(Duration::from_micros);
        Some(PathIngest {
            cpu,
            cpu_settled,
            wall,
            deferred,
            memory_bytes,
            written_bytes,
            disk_bytes,
        })
    }
}

/// Sends all requests, waits until the server is settled, and stops it.
pub(crate) fn send(mut server: PathServer, load: &Workload) -> Result<PathIngest> {
    server.process.wait_until_idle()?;
    let (cpu, wall) = (server.process.cpu_clock()?, wall_time());
    let written = server.process.written_bytes().unwrap_or_default();
    let deferred = stream(&server, load, 0.0..1.0, None, &AtomicU64::new(0))?;
    let (passed, cpu_after) = (wall_time() - wall, server.process.cpu_clock()?);
    server.wait_until_settled()?;
    let cpu_settled = server.process.cpu_clock()? - cpu;
    let memory_bytes = server.process.memory_bytes()?;
    // VictoriaMetrics writes its newest data when it stops.
    let all_written = server.process.stop_and_count()?.unwrap_or_default();
    Ok(PathIngest {
        cpu: cpu_after - cpu,
        cpu_settled,
        wall: passed,
        deferred,
        memory_bytes,
        written_bytes: all_written.saturating_sub(written),
        disk_bytes: 0,
    })
}

/// Sends the requests within two shares of each connection, and returns the number of deferred
/// ones. With a rate, in histograms per second, requests are not sent earlier than that. `sent` is
/// the number of requests that the first connection has sent.
pub(crate) fn stream(
    server: &PathServer,
    load: &Workload,
    part: std::ops::Range<f64>,
    rate: Option<f64>,
    sent: &AtomicU64,
) -> Result<u64> {
    let deferred = AtomicU64::new(0);
    let connections: Result<Vec<BenchConnection>> =
        load.lanes.iter().map(|_| server.connect()).collect();
    let start = wall_time();
    let longest = load.lanes.iter().map(Vec::len).max().unwrap_or_default();
    let place = |length: usize, share: f64| (length as f64 * share).round() as usize;
    let steps = place(longest, part.end) - place(longest, part.start);
    // Histograms of all connections in one step.
    let each = load.points as f64 / longest as f64;
    send_in_lockstep(connections?, steps, |lane, step, connection| {
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(step as f64 * each / rate);
            std::thread::sleep((start + due).saturating_sub(wall_time()));
        }
        let requests = &load.lanes[lane];
        // A shorter connection only keeps step.
        let outcome = match requests.get(place(requests.len(), part.start) + step) {
            Some(request) => send_one(server, connection, (load.format, request), &deferred),
            None => Ok(()),
        };
        if lane == 0 {
            sent.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    })
    .context("ingest")?;
    Ok(deferred.into_inner())
}

fn send_one(
    server: &PathServer,
    connection: &mut BenchConnection,
    (format, body): (WireFormat, &[u8]),
    deferred: &AtomicU64,
) -> Result<()> {
    let headers = match format {
        WireFormat::Otlp => "Content-Type: application/x-protobuf\r\n",
        _ => REMOTE_WRITE_HEADERS,
    };
    let path = server.kind.ingest_path(format);
    for _ in 0..PAUSES_MAX {
        let answer = match connection.post(path, headers, body) {
            Ok(answer) => answer,
            // VictoriaMetrics closes a connection after two minutes; any sender opens another.
            Err(_) => {
                *connection = server.connect()?;
                connection.post(path, headers, body).context("sending")?
            }
        };
        match answer.status {
            200..=299 => return Ok(()),
            429 | 503 => {
                deferred.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
            status => bail!("status {status}: {}", answer.text()),
        }
    }
    bail!("the server accepts no more data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_data_keep_the_cost_of_their_ingest() {
        let cost = PathIngest {
            cpu: Duration::from_millis(1_500),
            wall: Duration::from_secs(3),
            deferred: 7,
            disk_bytes: 9,
            ..PathIngest::default()
        };
        assert_eq!(PathIngest::parse(&cost.line()), Some(cost));
        assert_eq!(PathIngest::parse("1 2"), None);
    }
}
