//! StatsD timings as datagrams: offered, accepted, and dropped ones.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};

use super::server_node::{ServerKind, ServerNode, ServerRole};
use crate::clock::{cpu_time_of_program, wall_time};

/// Number of series, used in turn.
const SERIES: usize = 1_000;
/// A line; all have the same length, because the kernel splits a long send into datagrams of one
/// length.
const LINE: &str = "shop.checkout.0000:0000.0|ms\n";
/// Limits of one UDP send, in datagrams and bytes (`UDP_MAX_SEGMENTS`, RFC 768).
const SEGMENTS_MAX: usize = 64;
const SEND_BYTES_MAX: usize = 65_000;
/// Sending threads; each has a socket.
const SENDERS: usize = 2;
/// Lag behind the schedule beyond which a sender skips lines.
const LAG_MAX: Duration = Duration::from_millis(100);
const BURST: Duration = Duration::from_millis(1);

/// Transport of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatagramTransport {
    Udp,
    Unix,
}

/// Outcome of a stream of timings.
#[derive(Clone, Debug)]
pub(crate) struct OfferedLoad {
    pub(crate) offered: u64,
    pub(crate) accepted: u64,
    /// Values in datagrams that the kernel dropped, as counted by topdeck.
    pub(crate) dropped: u64,
    /// Values dropped by topdeck, with reasons in gaps.
    pub(crate) rejected: u64,
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    pub(crate) sender_cpu: Duration,
}

enum SenderSocket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

/// Offers `rate` timings per second for this long.
pub(crate) fn run_offer(
    way: DatagramTransport,
    per_datagram: usize,
    rate: f64,
    during: Duration,
) -> Result<OfferedLoad> {
    let mut node = ServerNode::start(ServerKind::Topdeck, ServerRole::Serve)?;
    let count = |node: &ServerNode, what: &str| -> Result<u64> {
        let parts = ["source=\"statsd\"", &format!("outcome=\"{what}\"")];
        Ok(node.metric("topdeck_listen_values_total", &parts)? as u64)
    };
    let lines: Vec<String> = (0..SERIES)
        .map(|at| format!("shop.checkout.{at:04}:{:04}.{}|ms\n", at * 7919 % 2_000, at % 10))
        .collect();
    ensure!(lines.iter().all(|line| line.len() == LINE.len()), "BUG: lines differ in length");
    let datagram = LINE.len() * per_datagram;
    let in_send = match way {
        DatagramTransport::Udp => SEGMENTS_MAX.min(SEND_BYTES_MAX / datagram),
        DatagramTransport::Unix => 1,
    };
    let (cpu, sender_cpu) = (node.server.cpu()?, cpu_time_of_program());
    let began = wall_time();
    let sent: Result<Vec<u64>> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let (lines, node) = (&lines, &node);
                scope.spawn(move || {
                    let socket = match way {
                        DatagramTransport::Udp => {
                            let socket = UdpSocket::bind(("127.0.0.1", 0))?;
                            socket.connect(("127.0.0.1", node.statsd))?;
                            setsockopt(&socket, sockopt::UdpGsoSegment, &(datagram as i32))?;
                            SenderSocket::Udp(socket)
                        }
                        DatagramTransport::Unix => {
                            let socket = UnixDatagram::unbound()?;
                            socket.connect(node.socket())?;
                            SenderSocket::Unix(socket)
                        }
                    };
                    let all: Vec<u8> = (0..SERIES.max(per_datagram * in_send) * 2)
                        .flat_map(|at| lines[(sender * 37 + at) % SERIES].bytes())
                        .collect();
                    let values = per_datagram * in_send;
                    let share = rate / SENDERS as f64;
                    Ok(send_scheduled(
                        &socket,
                        &all,
                        datagram * in_send,
                        values,
                        share,
                        began,
                        during,
                    )?)
                })
            })
            .collect();
        senders.into_iter().map(|one| one.join().expect("sending does not panic")).collect()
    });
    let passed = wall_time() - began;
    let offered = sent?.iter().sum();
    let (cpu, sender_cpu) = (node.server.cpu()? - cpu, cpu_time_of_program() - sender_cpu);
    // Counts are published at the end of their interval.
    node.server.wait_until_idle()?;
    std::thread::sleep(Duration::from_secs(11));
    let (taken, kernel) = (count(&node, "accepted")?, count(&node, "socket_buffer_full")?);
    let mut refused = 0;
    for reason in ["series_limit", "memory_limit", "rejected", "journal_full", "journal_error"] {
        refused += count(&node, reason)?;
    }
    node.stop()?;
    let dropped = kernel * per_datagram as u64;
    Ok(OfferedLoad {
        offered,
        accepted: taken,
        dropped,
        rejected: refused,
        wall: passed,
        cpu,
        sender_cpu,
    })
}

/// Sends on a schedule; returns the number of values sent.
fn send_scheduled(
    socket: &SenderSocket,
    all: &[u8],
    bytes: usize,
    values: usize,
    rate: f64,
    began: Duration,
    during: Duration,
) -> std::io::Result<u64> {
    let (mut sent, mut skipped, mut at) = (0u64, 0.0, 0);
    loop {
        let passed = wall_time() - began;
        if passed > during {
            return Ok(sent);
        }
        let due = passed.as_secs_f64() * rate - skipped;
        let behind = due - sent as f64;
        if behind > rate * LAG_MAX.as_secs_f64() {
            // Values that cannot be sent on time are not offered.
            skipped += behind - rate * BURST.as_secs_f64();
        }
        while (sent as f64) < due {
            if at + bytes > all.len() {
                at = 0;
            }
            let part = &all[at..at + bytes];
            match socket {
                SenderSocket::Udp(socket) => socket.send(part)?,
                SenderSocket::Unix(socket) => socket.send(part)?,
            };
            at += bytes;
            sent += values as u64;
            if wall_time() - began > during {
                return Ok(sent);
            }
        }
        std::thread::sleep(BURST);
    }
}
