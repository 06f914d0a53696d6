//! Compares reported response times with the time between packets, from kernel timestamps
//! (`tcpdump` on the loopback device).

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hist::{Histogram, Recorder};
use rustix::process::{Pid, Signal, kill_process};

use super::tools::{Tool, ToolResult, ToolRun};

/// The result of a tool, and the nanoseconds from each request packet to the response packet.
pub(crate) fn run_with_capture(tool: Tool, plan: &ToolRun) -> Result<(ToolResult, Histogram)> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("packets");
    let port = plan.url.trim_end_matches('/').rsplit(':').next();
    let port: u16 = port.and_then(|port| port.parse().ok()).context("a port in the URL")?;
    let filter = format!("tcp port {port}");
    let mut capture = Command::new("tcpdump")
        .args([
            "-i",
            "lo",
            "-n",
            "-B",
            "65536",
            "-s",
            "128",
            "--time-stamp-precision",
            "nano",
            "-Z",
            "root",
            "-w",
        ])
        .arg(&file)
        .arg(filter)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("starting tcpdump")?;
    thread::sleep(Duration::from_secs(1));
    let output = tool.command(plan)?.output();
    thread::sleep(Duration::from_secs(1));
    kill_process(Pid::from_child(&capture), Signal::INT)?;
    capture.wait()?;
    let output = output?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = tool.read(&String::from_utf8_lossy(&output.stdout))?;
    let bytes = std::fs::read(&file)?;
    let packets = exchanges(&bytes, port)?;
    ensure!(
        packets.count() as f64 > plan.rate.unwrap_or(0.0) * plan.seconds * 0.9,
        "captured {} exchanges",
        packets.count()
    );
    Ok((said, packets))
}

/// Parses a pcap capture with nanoseconds (pcap-savefile(5)), Ethernet and IPv4: the first packet
/// with data from a client port is a request, the next one with data to it the response.
fn exchanges(bytes: &[u8], port: u16) -> Result<Histogram> {
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    ensure!(word(0) == Some(0xa1b2_3c4d), "the capture is not a pcap file with nanoseconds");
    let mut times = Recorder::new();
    let mut asked: HashMap<u16, u64> = HashMap::new();
    let mut at = 24;
    while let (Some(seconds), Some(nanoseconds), Some(kept)) =
        (word(at), word(at + 4), word(at + 8))
    {
        let timestamp = u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds);
        let Some(packet) = bytes.get(at + 16..at + 16 + kept as usize) else { break };
        at += 16 + kept as usize;
        let Some((from, to, length)) = parse_tcp(packet) else { continue };
        if length == 0 {
            continue;
        }
        if to == port {
            asked.entry(from).or_insert(timestamp);
        } else if let Some(began) = asked.remove(&to) {
            times.record(timestamp.saturating_sub(began));
        }
    }
    Ok(times.snapshot())
}

/// Source and destination port, and bytes of data.
fn parse_tcp(packet: &[u8]) -> Option<(u16, u16, usize)> {
    let two = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
    let header = usize::from(packet.get(14)? & 15) * 4;
    let tcp = 14 + header;
    let offset = usize::from(packet.get(tcp + 12)? >> 4) * 4;
    Some((two(tcp)?, two(tcp + 2)?, usize::from(two(16)?).checked_sub(header + offset)?))
}
