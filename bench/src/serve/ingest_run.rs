//! Senders: in a closed loop, or on a schedule that does not wait for responses.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::bodies::{Bodies, LANES, RequestFormat};
use super::grpc::GrpcCaller;
use super::server_node::{ServerKind, ServerNode};
use crate::clock::{cpu_time_of_program, wall_time};
use crate::store::http::BenchConnection;

/// Delay before a deferred request is retried.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of retries after which the server counts as stuck.
const PAUSES_MAX: u32 = 1_200;

/// Accepted data of a server, and their cost.
#[derive(Clone, Debug)]
pub(crate) struct IngestRun {
    pub(crate) points: u64,
    pub(crate) wall: Duration,
    /// CPU time of the server during the run, and until it was idle.
    pub(crate) cpu: Duration,
    pub(crate) cpu_until_idle: Duration,
    /// CPU time of the senders.
    pub(crate) sender_cpu: Duration,
    /// Deferred requests.
    pub(crate) deferred: u64,
    pub(crate) memory_bytes: u64,
    /// From the scheduled time of a request to the end of its response; sorted.
    pub(crate) latencies: Vec<Duration>,
}

impl IngestRun {
    pub(crate) fn per_second(&self) -> f64 {
        self.points as f64 / self.wall.as_secs_f64()
    }

    /// Quantile of the latency in milliseconds.
    pub(crate) fn latency_ms(&self, share: f64) -> f64 {
        let at = (self.latencies.len() as f64 * share).ceil() as usize;
        let found = self.latencies.get(at.saturating_sub(1));
        found.map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
    }
}

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestPace {
    /// After the response to the previous one.
    Closed,
    /// At this many points per second, independent of responses.
    Open(f64),
}

/// A connection of either protocol.
enum IngestConnection {
    Http(BenchConnection, &'static str, RequestFormat),
    Grpc(Box<GrpcCaller>),
}

impl IngestConnection {
    fn open(port: u16, path: &'static str, format: RequestFormat) -> Result<IngestConnection> {
        Ok(match format {
            RequestFormat::OtlpGrpc => {
                IngestConnection::Grpc(Box::new(GrpcCaller::open(port, path)?))
            }
            _ => IngestConnection::Http(BenchConnection::open(port)?, path, format),
        })
    }

    /// Returns whether the request was accepted; otherwise it must be retried.
    fn send(&mut self, body: &[u8]) -> Result<bool> {
        match self {
            IngestConnection::Grpc(caller) => caller.call(body),
            IngestConnection::Http(connection, path, format) => {
                let answer = connection.post(path, format.headers(), body)?;
                match answer.status {
                    200..=299 => Ok(true),
                    429 | 503 => Ok(false),
                    status => bail!("status {status}: {}", answer.text()),
                }
            }
        }
    }

    fn send_until_accepted(&mut self, body: &[u8], put_off: &AtomicU64) -> Result<()> {
        for _ in 0..PAUSES_MAX {
            if self.send(body)? {
                return Ok(());
            }
            put_off.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
        bail!("the server accepts no more data")
    }
}

/// Sends everything, with one thread per connection.
pub(crate) fn send(
    node: &mut ServerNode,
    who: ServerKind,
    bodies: &Bodies,
    pace: RequestPace,
) -> Result<IngestRun> {
    let path = who.path(bodies.format).context("not supported")?;
    let put_off = AtomicU64::new(0);
    let mut wires = Vec::new();
    for lane in &bodies.lanes {
        let mut wire = IngestConnection::open(node.port, path, bodies.format)?;
        wire.send_until_accepted(&lane[0], &put_off).context("the first request")?;
        wires.push(wire);
    }
    put_off.store(0, Ordering::Relaxed);
    node.server.forget_memory();
    let interval = match pace {
        RequestPace::Closed => Duration::ZERO,
        RequestPace::Open(rate) => Duration::from_secs_f64(bodies.points as f64 / rate),
    };
    let (all, failed) = (Mutex::new(Vec::new()), Mutex::new(None));
    let (cpu, sender) = (node.server.cpu()?, cpu_time_of_program());
    let began = wall_time();
    std::thread::scope(|scope| {
        for (lane, (mut wire, requests)) in wires.into_iter().zip(&bodies.lanes).enumerate() {
            let (all, failed, put_off) = (&all, &failed, &put_off);
            scope.spawn(move || {
                let mut latencies = Vec::with_capacity(requests.len());
                let (mut intended, step) =
                    (began + interval * lane as u32, interval * LANES as u32);
                for request in &requests[1..] {
                    match pace {
                        RequestPace::Closed => intended = wall_time(),
                        RequestPace::Open(_) => {
                            std::thread::sleep(intended.saturating_sub(wall_time()));
                        }
                    }
                    if let Err(error) = wire.send_until_accepted(request, put_off) {
                        failed.lock().expect("no panic").get_or_insert(error);
                        return;
                    }
                    latencies.push(wall_time() - intended);
                    intended += step;
                }
                all.lock().expect("no panic").append(&mut latencies);
            });
        }
    });
    let (passed, sender_cpu) = (wall_time() - began, cpu_time_of_program() - sender);
    let cpu_after = node.server.cpu()?;
    if let Some(error) = failed.into_inner().expect("no panic") {
        return Err(error);
    }
    let memory_bytes = node.server.memory_bytes()?;
    node.server.wait_until_idle()?;
    let mut latencies = all.into_inner().expect("no panic");
    latencies.sort_unstable();
    Ok(IngestRun {
        points: bodies.timed_points(),
        wall: passed,
        cpu: cpu_after - cpu,
        cpu_until_idle: node.server.cpu()? - cpu,
        sender_cpu,
        deferred: put_off.into_inner(),
        memory_bytes,
        latencies,
    })
}
