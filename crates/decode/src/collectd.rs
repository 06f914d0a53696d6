//! Decoder of collectd's binary network protocol.
//!
//! ```text
//! part        u16 type, u16 length with these 4 bytes, payload; all big-endian
//! 0x0000 host        0x0002 plugin    0x0003 plugin instance   0x0004 type   0x0005 type instance
//!                    text that ends with a zero byte; it holds until it is replaced
//! 0x0001 time        u64 seconds      0x0008 time       u64 in units of 2^-30 s
//! 0x0007, 0x0009     interval in the same units, not used
//! 0x0006 values      u16 number, u8 kind of each, 8 bytes of each:
//!                    0 counter u64, 1 gauge f64 (little-endian), 2 derive i64, 3 absolute u64
//! 0x0100 message, 0x0101 severity: a notification, not used
//! 0x0200 signature   HMAC-SHA-256 (32 bytes) of all that follows it, then the user's name
//! 0x0210 encrypted   AES-256-OFB: not supported
//! ```
//!
//! The names of a type's values are in a file of collectd, `types.db`, which is not sent: those of
//! the common types are here, others are numbered.
//!
//! Source: collectd wiki, "Binary protocol"; collectd 5.12, `src/network.h`, `src/types.db`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::borrow::Cow;

/// Longest text of an identifier; collectd's have 127 bytes.
const TEXT_BYTES_MAX: usize = 255;
/// Bytes of a part's type and length.
const HEAD_BYTES: usize = 4;
/// Bytes of a signature before the name of the user.
const HMAC_BYTES: usize = 32;

/// Names of values by type, where a type has several.
const TYPES: &[(&[&str], &[&str])] = &[
    (
        &[
            "if_octets",
            "if_packets",
            "if_errors",
            "if_dropped",
            "if_tx_rx",
            "io_octets",
            "io_packets",
            "memcached_octets",
            "mysql_octets",
            "node_octets",
            "serial_octets",
            "ath_stat",
            "apache_octets",
        ],
        &["rx", "tx"],
    ),
    (
        &[
            "disk_octets",
            "disk_ops",
            "disk_time",
            "disk_merged",
            "disk_latency",
            "io_ops",
            "ps_disk_octets",
            "ps_disk_ops",
            "ps_io_octets",
            "arc_l2_bytes",
        ],
        &["read", "write"],
    ),
    (&["disk_io_time"], &["io_time", "weighted_io_time"]),
    (&["load"], &["shortterm", "midterm", "longterm"]),
    (&["ps_count"], &["processes", "threads"]),
    (&["ps_cputime"], &["user", "syst"]),
    (&["ps_pagefaults", "vmpage_faults"], &["minflt", "majflt"]),
    (&["vmpage_io"], &["in", "out"]),
    (&["df"], &["used", "free"]),
    (&["dns_octets"], &["queries", "responses"]),
    (&["compression"], &["uncompressed", "compressed"]),
    (&["voltage_threshold"], &["value", "threshold"]),
    (&["arc_counts"], &["demand_data", "demand_metadata", "prefetch_data", "prefetch_metadata"]),
];

/// A number by its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CollectdNumber {
    /// Cumulative count.
    Counter(u64),
    /// Current value; not NaN.
    Gauge(f64),
    /// Cumulative count that may start below 0.
    Derive(i64),
    /// Count since the previous value.
    Absolute(u64),
}

impl CollectdNumber {
    /// The number as a double.
    pub fn as_f64(self) -> f64 {
        match self {
            CollectdNumber::Counter(count) | CollectdNumber::Absolute(count) => count as f64,
            CollectdNumber::Derive(count) => count as f64,
            CollectdNumber::Gauge(value) => value,
        }
    }
}

/// Identifier of the values that follow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CollectdIdentifier<'a> {
    /// Host.
    pub host: &'a str,
    /// Plugin, and its instance.
    pub plugin: &'a str,
    /// Empty if there is none.
    pub plugin_instance: &'a str,
    /// Type, and its instance.
    pub type_name: &'a str,
    /// Empty if there is none.
    pub type_instance: &'a str,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectdValue<'a> {
    /// Whose it is.
    pub identifier: CollectdIdentifier<'a>,
    /// Its position among the values of its type, and their number.
    pub position: (usize, usize),
    /// Time, in nanoseconds since the Unix epoch.
    pub time: i64,
    /// The number.
    pub number: CollectdNumber,
}

impl CollectdValue<'_> {
    /// Name of the value among those of its type: of the type's only value, none.
    pub fn name(&self) -> Option<Cow<'static, str>> {
        let (at, count) = self.position;
        if count < 2 {
            return None;
        }
        let is_it = |row: &&(&[&str], &[&str])| {
            row.0.contains(&self.identifier.type_name) && row.1.len() == count
        };
        let names = TYPES.iter().find(is_it).map(|row| row.1);
        let name = names.and_then(|names| names.get(at));
        Some(name.map_or_else(|| Cow::from(at.to_string()), |name| Cow::from(*name)))
    }
}

/// What a packet has beside values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectdSummary {
    /// Notifications, and gauges that are NaN.
    pub skipped: usize,
}

/// Signature at the start of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectdSignature<'a> {
    /// HMAC-SHA-256.
    pub hmac: &'a [u8],
    /// What it signs: the name of the user and the parts.
    pub signed: &'a [u8],
    /// Name of the user.
    pub user: &'a str,
}

/// A part of a packet, and the rest of the packet.
fn split_part(bytes: &[u8]) -> Result<(u16, &[u8], &[u8]), String> {
    let Some((&[a, b, c, d], _)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Err(format!("{} bytes at the end are no part", bytes.len()));
    };
    let (kind, length) = (u16::from_be_bytes([a, b]), usize::from(u16::from_be_bytes([c, d])));
    match (bytes.get(HEAD_BYTES..length), bytes.get(length..)) {
        (Some(body), Some(rest)) => Ok((kind, body, rest)),
        _ => Err(format!("part {kind:#06x} has {length} bytes, {} are left", bytes.len())),
    }
}

/// The signature of a packet, and its other parts; a packet without one is all parts.
pub fn split_signature(packet: &[u8]) -> Result<(Option<CollectdSignature<'_>>, &[u8]), String> {
    let (kind, body, rest) = split_part(packet)?;
    if kind != 0x0200 {
        return Ok((None, packet));
    }
    let malformed = || "the signature is malformed".to_owned();
    let (hmac, user) = body.split_at_checked(HMAC_BYTES).ok_or_else(malformed)?;
    let user = std::str::from_utf8(user).map_err(|_| malformed())?;
    let signed = packet.get(HEAD_BYTES.saturating_add(HMAC_BYTES)..).ok_or_else(malformed)?;
    Ok((Some(CollectdSignature { hmac, signed, user }), rest))
}

/// Reads the parts of a packet. After an error, the values before it were passed on.
pub fn read_parts<'a>(
    mut parts: &'a [u8],
    each: &mut dyn FnMut(CollectdValue<'a>),
) -> Result<CollectdSummary, String> {
    let mut identifier = CollectdIdentifier::default();
    let (mut time, mut summary) = (None, CollectdSummary::default());
    while !parts.is_empty() {
        let (kind, body, rest) = split_part(parts)?;
        parts = rest;
        match kind {
            0x0000 => identifier.host = text(kind, body)?,
            0x0002 => identifier.plugin = text(kind, body)?,
            0x0003 => identifier.plugin_instance = text(kind, body)?,
            0x0004 => identifier.type_name = text(kind, body)?,
            0x0005 => identifier.type_instance = text(kind, body)?,
            0x0001 => time = parse_time(body, 1_000_000_000, 0)?,
            0x0008 => time = parse_time(body, 1_000_000_000, 30)?,
            0x0006 => {
                let time = time.ok_or("values without a time")?;
                for (name, text) in [
                    ("host", identifier.host),
                    ("plugin", identifier.plugin),
                    ("type", identifier.type_name),
                ] {
                    if text.is_empty() {
                        return Err(format!("values without a {name}"));
                    }
                }
                read_values(body, &mut summary, &mut |position, number| {
                    each(CollectdValue { identifier, position, time, number });
                })?;
            }
            0x0100 => summary.skipped = summary.skipped.saturating_add(1),
            0x0200 => return Err("a signature that is not at the start".to_owned()),
            0x0210 => {
                let what = "the packet is encrypted, which is not supported; set SecurityLevel \
                            Sign in collectd";
                return Err(what.to_owned());
            }
            // Intervals, severities, and parts of later versions.
            _ => {}
        }
    }
    Ok(summary)
}

fn text(kind: u16, body: &[u8]) -> Result<&str, String> {
    let text = body.strip_suffix(&[0]).and_then(|text| std::str::from_utf8(text).ok());
    let is_plain =
        |text: &&str| text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control);
    text.filter(is_plain).ok_or_else(|| format!("part {kind:#06x} is no text"))
}

/// Time in units of 2^-`shift` s; 0 is none.
fn parse_time(body: &[u8], nanoseconds: u128, shift: u32) -> Result<Option<i64>, String> {
    let bytes = <[u8; 8]>::try_from(body).map_err(|_| "a time without 8 bytes".to_owned())?;
    let time = u128::from(u64::from_be_bytes(bytes)).saturating_mul(nanoseconds) >> shift;
    let time = i64::try_from(time).map_err(|_| "a time beyond the year 2262".to_owned())?;
    Ok((time != 0).then_some(time))
}

fn read_values(
    body: &[u8],
    summary: &mut CollectdSummary,
    each: &mut dyn FnMut((usize, usize), CollectdNumber),
) -> Result<(), String> {
    let malformed = || "values whose number and length differ".to_owned();
    let (count, body) = body.split_first_chunk::<2>().ok_or_else(malformed)?;
    let count = usize::from(u16::from_be_bytes(*count));
    let (kinds, numbers) = body.split_at_checked(count).ok_or_else(malformed)?;
    let (numbers, []) = numbers.as_chunks::<8>() else { return Err(malformed()) };
    if numbers.len() != count {
        return Err(malformed());
    }
    for (at, (kind, bytes)) in kinds.iter().zip(numbers).enumerate() {
        let number = match kind {
            0 => CollectdNumber::Counter(u64::from_be_bytes(*bytes)),
            1 => CollectdNumber::Gauge(f64::from_le_bytes(*bytes)),
            2 => CollectdNumber::Derive(i64::from_be_bytes(*bytes)),
            3 => CollectdNumber::Absolute(u64::from_be_bytes(*bytes)),
            _ => return Err(format!("a value of the unknown kind {kind}")),
        };
        match number {
            // Unknown, in collectd.
            CollectdNumber::Gauge(value) if value.is_nan() => {
                summary.skipped = summary.skipped.saturating_add(1);
            }
            number => each((at, count), number),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = (body.len() + HEAD_BYTES) as u16;
        [&kind.to_be_bytes()[..], &length.to_be_bytes(), body].concat()
    }

    /// Parts up to the values.
    fn head() -> Vec<u8> {
        let parts = [
            part(0, b"web-1\0"),
            part(8, &(1_700_000_000_u64 << 30 | 1 << 29).to_be_bytes()),
            part(9, &(10_u64 << 30).to_be_bytes()),
            part(2, b"interface\0"),
            part(3, b"eth0\0"),
            part(4, b"if_octets\0"),
        ];
        parts.concat()
    }

    fn values(kinds: &[u8], numbers: &[[u8; 8]]) -> Vec<u8> {
        part(6, &[&(kinds.len() as u16).to_be_bytes()[..], kinds, &numbers.concat()].concat())
    }

    fn read(packet: &[u8]) -> (Vec<String>, Result<usize, String>) {
        let mut found = Vec::new();
        let summary = read_parts(packet, &mut |value| {
            let CollectdIdentifier { host, plugin, plugin_instance, type_name, type_instance } =
                value.identifier;
            found.push(format!(
                "{host}/{plugin}-{plugin_instance}/{type_name}-{type_instance} {:?} {:?} @{}",
                value.name().as_deref(),
                value.number,
                value.time
            ));
        });
        (found, summary.map(|summary| summary.skipped))
    }

    #[test]
    fn values_have_their_identifier_time_and_kind() {
        let two = values(&[2, 2], &[7_i64.to_be_bytes(), (-8_i64).to_be_bytes()]);
        let load = [part(3, b"\0"), part(2, b"load\0"), part(4, b"load\0")].concat();
        let gauges = [0.5_f64, 1.5, 2.5].map(f64::to_le_bytes);
        let more = [part(1, &1_700_000_001_u64.to_be_bytes()), part(5, b"x\0")].concat();
        let others = values(&[0, 3, 1], &[1_u64.to_be_bytes(), 2_u64.to_be_bytes(), [0xff; 8]]);
        let packet = [head(), two, load, values(&[1; 3], &gauges), more, part(4, b"odd\0"), others];
        let (found, skipped) = read(&packet.concat());
        assert_eq!(
            found,
            [
                "web-1/interface-eth0/if_octets- Some(\"rx\") Derive(7) @1700000000500000000",
                "web-1/interface-eth0/if_octets- Some(\"tx\") Derive(-8) @1700000000500000000",
                "web-1/load-/load- Some(\"shortterm\") Gauge(0.5) @1700000000500000000",
                "web-1/load-/load- Some(\"midterm\") Gauge(1.5) @1700000000500000000",
                "web-1/load-/load- Some(\"longterm\") Gauge(2.5) @1700000000500000000",
                "web-1/load-/odd-x Some(\"0\") Counter(1) @1700000001000000000",
                "web-1/load-/odd-x Some(\"1\") Absolute(2) @1700000001000000000",
            ]
        );
        assert_eq!(skipped, Ok(1));
        // The only value of a type has no name; a notification has no values.
        let one = [head(), values(&[1], &[3.0_f64.to_le_bytes()]), part(0x0100, b"full\0")];
        let (found, skipped) = read(&one.concat());
        assert!(found[0].contains("if_octets- None Gauge(3.0)"), "{found:?}");
        assert_eq!(skipped, Ok(1));
    }

    #[test]
    fn damaged_packets_are_rejected_after_what_precedes_the_damage() {
        let good = values(&[1], &[1.0_f64.to_le_bytes()]);
        #[track_caller]
        fn check(packet: &[&[u8]], count: usize, expected: &str) {
            let (found, error) = read(&packet.concat());
            assert_eq!((found.len(), error), (count, Err(expected.to_owned())));
        }
        check(&[&head(), &good, &[0, 6, 0]], 1, "3 bytes at the end are no part");
        check(&[&head(), &[0, 6, 0, 99]], 0, "part 0x0006 has 99 bytes, 4 are left");
        check(&[&head(), &[0, 6, 0, 3, 1, 2]], 0, "part 0x0006 has 3 bytes, 6 are left");
        check(&[&good], 0, "values without a time");
        check(&[&part(1, &7_u64.to_be_bytes()), &good], 0, "values without a host");
        check(&[&head(), &part(4, b"\0"), &good], 0, "values without a type");
        check(&[&part(0, b"no end")], 0, "part 0x0000 is no text");
        check(&[&part(0, b"a\nb\0")], 0, "part 0x0000 is no text");
        check(&[&part(0, b"\xff\0")], 0, "part 0x0000 is no text");
        check(&[&part(0, &[&[b'x'; 300][..], &[0]].concat())], 0, "part 0x0000 is no text");
        check(&[&part(1, &[1; 7])], 0, "a time without 8 bytes");
        check(&[&part(1, &[0xff; 8])], 0, "a time beyond the year 2262");
        let differ = "values whose number and length differ";
        check(&[&head(), &part(6, &[0])], 0, differ);
        check(&[&head(), &part(6, &[0, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0])], 0, differ);
        check(&[&head(), &part(6, &[0xff, 0xff, 1])], 0, differ);
        check(&[&head(), &part(6, &[0, 1, 1, 0])], 0, differ);
        check(&[&head(), &values(&[9], &[[0; 8]])], 0, "a value of the unknown kind 9");
        check(&[&part(0x0200, &[7; 40])], 0, "a signature that is not at the start");
        let (_, error) = read(&part(0x0210, &[7; 40]));
        assert!(error.unwrap_err().ends_with("set SecurityLevel Sign in collectd"));
        let whole = [head(), good].concat();
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]).0, [""; 0], "{end}");
        }
    }

    #[test]
    fn a_signature_is_split_off() {
        let parts = head();
        assert_eq!(split_signature(&parts), Ok((None, &*parts)));
        let packet = [part(0x0200, &[&[7; 32][..], b"user"].concat()), parts.clone()].concat();
        let (signature, rest) = split_signature(&packet).unwrap();
        let signed = [b"user", &*parts].concat();
        let expected = CollectdSignature { hmac: &[7; 32], signed: &signed, user: "user" };
        assert_eq!((signature, rest), (Some(expected), &*parts));
        assert!(split_signature(&part(0x0200, &[7; 31])).is_err());
        assert!(split_signature(b"").is_err());
    }
}
