//! NTP probe: asks a time server once, and compares its clock with that of this host.
//!
//! Packet format: RFC 5905, section 7.3; offset and delay: section 8.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use net::{Endpoint, EndpointError};
use role::settings::{DurationSetting, SettingsCheck, TableRef};
use serde::Deserialize;

use crate::probe::{Attempt, Probe};

/// Default port.
const PORT: u16 = 123;
const PACKET_BYTES: usize = 48;
/// Version 4, mode 3 (client).
const CLIENT: u8 = 4 << 3 | 3;
/// Mode of a server's packet.
const SERVER_MODE: u8 = 4;
/// Leap indicator of a server whose clock is not synchronised.
const UNSYNCHRONISED: u8 = 3;
/// Largest stratum of a synchronised server.
const STRATUM_MAX: u8 = 15;
/// Seconds from 1900, the epoch of NTP, to 1970.
const UNIX_EPOCH_SECONDS: u64 = 2_208_988_800;
/// Seconds of an era: time stamps have 32 bits of seconds.
const ERA_SECONDS: f64 = 4_294_967_296.0;

/// `ntp = "host"` or `"host:port"`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct NtpProbe {
    /// `host` or `host:port`; the default port is 123.
    pub ntp: String,
    /// Largest difference of the clocks, in either direction; default: any.
    pub max_offset: Option<DurationSetting>,
}

/// Time stamp of NTP: seconds since 1900 modulo 2³², in units of 2⁻³² s.
type Stamp = u64;

/// What a server's packet says.
#[derive(Debug, PartialEq)]
struct ServerClock {
    stratum: u8,
    /// Error bound of the server's clock, in seconds.
    root_distance: f64,
    /// Server's clock minus ours, in seconds.
    offset: f64,
}

fn stamp(time: SystemTime) -> Stamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
    (since.as_secs().wrapping_add(UNIX_EPOCH_SECONDS) << 32) | fraction
}

/// Seconds from `from` to `to`, the shorter way around the era.
fn seconds_between(from: Stamp, to: Stamp) -> f64 {
    to.wrapping_sub(from).cast_signed() as f64 / ERA_SECONDS
}

/// Reads a server's packet; the reason if it is not an answer that can be used.
fn read_answer(packet: &[u8], sent: Stamp, received: Stamp) -> Result<ServerClock, String> {
    let Some(packet) = packet.get(..PACKET_BYTES) else {
        return Err(format!("the answer has {} bytes, NTP has 48", packet.len()));
    };
    let word = |at| u32::from_be_bytes(bytes_at(packet, at));
    let time = |at| Stamp::from_be_bytes(bytes_at(packet, at));
    let (leap, mode, stratum) = (packet[0] >> 6, packet[0] & 7, packet[1]);
    if mode != SERVER_MODE {
        return Err(format!("the answer has mode {mode}, a server's is {SERVER_MODE}"));
    }
    if time(24) != sent {
        return Err("the answer is not one to this request".to_owned());
    }
    if stratum == 0 {
        let code = String::from_utf8_lossy(&packet[12..16]).into_owned();
        return Err(format!("the server refuses: kiss code {code:?}"));
    }
    if leap == UNSYNCHRONISED || stratum > STRATUM_MAX {
        return Err(format!("the server's clock is not synchronised (stratum {stratum})"));
    }
    if time(40) == 0 {
        return Err("the answer has no time".to_owned());
    }
    let short = |at| f64::from(word(at)) / 65_536.0;
    let (arrived, left) = (time(32), time(40));
    let offset = (seconds_between(sent, arrived) + seconds_between(received, left)) / 2.0;
    Ok(ServerClock { stratum, root_distance: short(4) / 2.0 + short(8), offset })
}

/// The bytes of a field.
fn bytes_at<const N: usize>(packet: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&packet[at..at + N]);
    field
}

impl Probe for NtpProbe {
    const KEY: &'static str = "ntp";
    const KEYS: &'static [&'static str] = &["ntp", "max_offset"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        if let Err(error) = self.endpoint() {
            check.problem(table, "ntp", format!("{}; expected host or host:port", error.reason));
        }
    }

    fn url(&self) -> String {
        format!("ntp://{}", self.ntp)
    }

    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        Endpoint::parse_as(&self.url(), false, Some(PORT))
    }

    async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        let socket = attempt.connect_udp().await?;
        let (began, sent) = (Instant::now(), stamp(SystemTime::now()));
        let mut request = [0; PACKET_BYTES];
        request[0] = CLIENT;
        request[40..].copy_from_slice(&sent.to_be_bytes());
        socket.send(&request).await.map_err(|error| format!("cannot send: {error}"))?;
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer).await;
        let took = began.elapsed();
        let length = length.map_err(|error| format!("no answer: {error}"))?;
        attempt.report.phases.push(("wait", took));
        // The monotonic clock measures the round trip: a step of the wall clock is none of it.
        let fraction = (took.as_nanos() << 32) / 1_000_000_000;
        let received = sent.wrapping_add(Stamp::try_from(fraction).unwrap_or(Stamp::MAX));
        let clock = read_answer(&answer[..length], sent, received)?;
        attempt.report.add("probe_ntp_offset", "s", clock.offset);
        attempt.report.add("probe_ntp_root_distance", "s", clock.root_distance);
        attempt.report.add("probe_ntp_stratum", "", clock.stratum.into());
        match self.max_offset {
            Some(DurationSetting(max)) if clock.offset.abs() > max.as_secs_f64() => {
                Err(format!("the clocks differ by {}", offset_text(clock.offset)))
            }
            _ => Ok(()),
        }
    }
}

/// An offset with its direction.
fn offset_text(seconds: f64) -> String {
    let amount = Duration::try_from_secs_f64(seconds.abs()).unwrap_or(Duration::MAX);
    let direction = if seconds > 0.0 { "ahead of" } else { "behind" };
    format!("{amount:.3?}: the server's is {direction} this host's")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Stamp = 1 << 32;

    /// A server's answer, which arrived there at `arrived` and left at `left`.
    fn packet(sent: Stamp, arrived: Stamp, left: Stamp) -> [u8; PACKET_BYTES] {
        let mut packet = [0; PACKET_BYTES];
        packet[0] = 4 << 3 | SERVER_MODE;
        packet[1] = 2;
        // Root delay 0.5 s, root dispersion 0.25 s.
        packet[4..8].copy_from_slice(&0x8000_u32.to_be_bytes());
        packet[8..12].copy_from_slice(&0x4000_u32.to_be_bytes());
        packet[24..32].copy_from_slice(&sent.to_be_bytes());
        packet[32..40].copy_from_slice(&arrived.to_be_bytes());
        packet[40..].copy_from_slice(&left.to_be_bytes());
        packet
    }

    #[test]
    fn the_offset_is_the_mean_of_both_directions() {
        // 1 s there, 3 s at the server, 2 s back, and its clock is 10 s ahead.
        let sent = 100 * SECOND;
        let answer = packet(sent, 111 * SECOND, 114 * SECOND);
        let clock = read_answer(&answer, sent, 106 * SECOND).unwrap();
        assert_eq!(clock, ServerClock { stratum: 2, root_distance: 0.5, offset: 9.5 });
        // Behind, and over the end of the era (7 February 2036).
        let sent = 2 * SECOND;
        let answer = packet(sent, Stamp::MAX - SECOND + 1, Stamp::MAX - SECOND + 1);
        let clock = read_answer(&answer, sent, sent).unwrap();
        assert_eq!(clock.offset, -3.0);
    }

    #[test]
    fn an_answer_that_cannot_be_used_has_its_reason() {
        let sent = 7;
        #[track_caller]
        fn check(packet: &[u8], expected: &str) {
            let error = read_answer(packet, 7, 8).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let answer = packet(sent, 9, 9);
        check(&answer[..47], "47 bytes");
        check(&[], "0 bytes");
        let changed = |at: usize, byte: u8| {
            let mut packet = answer;
            packet[at] = byte;
            packet
        };
        check(&changed(0, 4 << 3 | 3), "mode 3");
        check(&changed(31, 8), "not one to this request");
        check(&changed(1, 0), "kiss code");
        check(&changed(1, 16), "not synchronised (stratum 16)");
        check(&changed(0, 3 << 6 | 4 << 3 | 4), "not synchronised");
        check(&packet(sent, 9, 0), "no time");
    }

    #[test]
    fn times_become_stamps() {
        assert_eq!(stamp(UNIX_EPOCH), UNIX_EPOCH_SECONDS << 32);
        let half = UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(stamp(half), (UNIX_EPOCH_SECONDS + 1) << 32 | 1 << 31);
        assert_eq!(offset_text(-0.25), "250.000ms: the server's is behind this host's");
    }
}
