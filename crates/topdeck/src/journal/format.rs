//! Formatting of sizes (powers of 1,024), times (UTC), positions and gaps. Positions have no marks
//! between thousands, so that they can be copied into a command.

use std::path::Path;
use std::time::Duration;

use collect::Unit;
use journal::{Compression, FullReason, LimitPolicy, Limits, RecordGap};

use crate::command::escape_control;
use crate::hist::intervals;
use crate::hist::value_formatter::ValueFormatter;
pub(crate) use crate::hist::value_formatter::{count, share};

/// `16 MiB`, `1.21 KiB`, `7 B`.
pub(crate) fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut at = 0;
    // 1,023.996 KiB would be written as 1024.00.
    while at + 1 < UNITS.len() && bytes as f64 / 1024f64.powi(at as i32) >= 1023.995 {
        at += 1;
    }
    let value = bytes as f64 / 1024f64.powi(at as i32);
    match value.fract() == 0.0 {
        true => format!("{} {}", count(value as u64), UNITS[at]),
        false => format!("{value:.2} {}", UNITS[at]),
    }
}

/// Bytes in a time.
pub(crate) fn format_rate(size: u64, time: Duration) -> String {
    format!("{}/s", format_bytes((size as f64 / time.as_secs_f64().max(1e-9)) as u64))
}

/// `3 records`, `1 record`.
pub(crate) fn format_records(n: u64) -> String {
    format!("{} record{}", count(n), if n == 1 { "" } else { "s" })
}

/// `12.35 ms`.
pub(crate) fn format_duration(time: Duration) -> String {
    format_ns(time.as_nanos() as f64)
}

/// `12.35 ms`, from nanoseconds.
pub(crate) fn format_ns(ns: f64) -> String {
    ValueFormatter::new(Some(&Unit::Nanoseconds)).estimate(ns)
}

/// `2026-05-01 12:00:00Z`, from nanoseconds since the Unix epoch.
pub(crate) fn format_time(ns: i64) -> String {
    intervals::time_text(ns, 1_000_000_000)
}

/// A limit in time, in the largest unit that it is a whole number of: `7 d`.
pub(crate) fn format_age(age: Duration) -> String {
    const UNITS: [(u128, &str); 4] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
    ];
    let ns = age.as_nanos();
    match UNITS.iter().find(|(unit_ns, _)| ns.is_multiple_of(*unit_ns)) {
        Some((unit_ns, unit)) => format!("{} {unit}", ns / unit_ns),
        None => format_duration(age),
    }
}

pub(crate) fn codec_name(codec: Compression) -> &'static str {
    match codec {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
    }
}

pub(crate) fn limit_policy_name(at_limit: LimitPolicy) -> &'static str {
    match at_limit {
        LimitPolicy::Reject => "refuse",
        LimitPolicy::DropOldest => "drop-oldest",
    }
}

/// What a journal keeps and what it does then, as a sentence without its subject.
pub(crate) fn describe_limits(limits: &Limits) -> String {
    let size = match limits.bytes_max {
        Some(most) => format!("at most {}", format_bytes(most)),
        None => "as much as the disk holds".to_owned(),
    };
    let old = match limits.age_max {
        Some(most) => format!("for at most {}", format_age(most)),
        None => "of any age".to_owned(),
    };
    let then = match limits.on_full {
        LimitPolicy::Reject => {
            "when it is full, appends are refused until its subscribers have read on"
        }
        LimitPolicy::DropOldest => {
            "when it is full, the oldest records are dropped, and who missed them is told"
        }
    };
    format!("{size}, {old}; {then}")
}

/// A path as one types it in a shell.
pub(crate) fn shell_quote(path: &Path) -> String {
    let path = escape_control(&path.display().to_string());
    let safe = |c: char| c.is_alphanumeric() || "/._-+,@%:".contains(c);
    match !path.is_empty() && path.chars().all(safe) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// Why something did not become durable in time, and what to do about it.
pub(crate) fn stalled_message(dir: &str) -> String {
    format!(
        "the disk is slow, or the process that writes to it is stopped; `fuser {dir}/buffer` lists those that \
         have the journal open"
    )
}

/// Why a journal is full, and what to do about it.
pub(crate) fn full_message(dir: &str, full: &FullReason) -> String {
    let raise = format!("raise the limit (`topdeck journal limit {dir} --max-bytes …`)");
    let FullReason::RetentionLimit { used_bytes, max_bytes, holder, policy } = full else {
        return "there is no space left on its disk; what is acknowledged is safe, and appending goes on when there \
                is space"
            .to_owned();
    };
    let used = format!(
        "segments take {} of at most {}",
        format_bytes(*used_bytes),
        format_bytes(*max_bytes)
    );
    match (policy, holder) {
        (LimitPolicy::DropOldest, _) => {
            format!("{used}, which leaves no room for one more; {raise}")
        }
        (LimitPolicy::Reject, None) => format!(
            "{used}, and nobody has subscribed, so nothing may go; add who reads \
             (`topdeck journal subscribers {dir} add NAME`), or {raise}"
        ),
        (LimitPolicy::Reject, Some(name)) => format!(
            "{used}, and {name:?} has not passed the oldest; let it read on, remove it \
             (`topdeck journal subscribers {dir} remove {name}`), or {raise}"
        ),
    }
}

/// `position 7`, `positions 7..10`.
pub(crate) fn format_positions(positions: &std::ops::Range<u64>) -> String {
    match positions.end - positions.start {
        1 => format!("position {}", positions.start),
        _ => format!("positions {}..{}", positions.start, positions.end),
    }
}

/// Text in which sizes are written as "16384 bytes" or "16384 to 65536 bytes", with units that fit.
pub(crate) fn humanize_sizes(text: &str) -> String {
    if !text.contains(" bytes") {
        return text.to_owned();
    }
    let words = text.split(' ').map(|word| {
        let digits = word.trim_end_matches(',');
        let size = digits.parse().map(format_bytes);
        size.map_or(word.to_owned(), |size| size + &word[digits.len()..])
    });
    words.collect::<Vec<_>>().join(" ").replace("B bytes", "B")
}

/// A gap as a sentence.
pub(crate) fn describe_gap(gap: &RecordGap) -> String {
    let missing = if gap.records() == 1 { "is" } else { "are" };
    let mut text = format!(
        "{} {missing} missing ({}): {}",
        format_records(gap.records()),
        format_positions(&gap.positions),
        gap.reason
    );
    let mut known = Vec::new();
    if let Some(range) = &gap.time {
        let (from, to) = (format_time(*range.start()), format_time(*range.end()));
        known.push(match from == to {
            true => format!("appended at {from}"),
            false => format!("appended from {from} to {to}"),
        });
    }
    for part in &gap.producers {
        let (first, last) = (part.sequences.start(), part.sequences.end());
        let sequences = match first == last {
            true => format!("sequence {first}"),
            false => format!("sequences {first} to {last}"),
        };
        known.push(format!(
            "{} of producer {} epoch {}, {sequences}",
            format_records(part.records),
            part.producer,
            part.epoch
        ));
    }
    if !known.is_empty() {
        let of = if gap.is_complete { "" } else { "of a longer stretch that these are part of: " };
        text.push_str(&format!("; {of}{}", known.join("; ")));
    }
    text
}

/// Lines whose columns stand below each other; the last is not padded.
pub(crate) fn format_table<const N: usize>(rows: &[[String; N]], right: [bool; N]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(at, cell)| match right[at] {
            true => format!("{cell:>0$}", widths[at]),
            false => format!("{cell:<0$}", widths[at]),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(&format!("  {}\n", line.trim_end()));
    }
    text
}

#[cfg(test)]
mod tests {
    use journal::{GapReason, ProducerGap};

    use super::*;

    #[test]
    fn sizes_are_short() {
        for (size, expected) in [
            (0, "0 B"),
            (1023, "1,023 B"),
            (1024, "1 KiB"),
            (1 << 20, "1 MiB"),
            ((1 << 20) - 1, "1.00 MiB"),
            (1_234_567, "1.18 MiB"),
            (5 << 40, "5 TiB"),
            (5 << 50, "5,120 TiB"),
        ] {
            assert_eq!(format_bytes(size), expected, "{size}");
        }
    }

    #[test]
    fn sizes_in_text_have_units() {
        assert_eq!(
            humanize_sizes("a segment is 1024 bytes, must be 16384 to 4294967296 bytes"),
            "a segment is 1 KiB, must be 16 KiB to 4 GiB"
        );
        assert_eq!(
            humanize_sizes("producers are 70000, must be 1 to 65536"),
            "producers are 70000, must be 1 to 65536"
        );
    }

    #[test]
    fn paths_are_shell_quoted() {
        assert_eq!(shell_quote(Path::new("/var/lib/app-1/j.old")), "/var/lib/app-1/j.old");
        assert_eq!(shell_quote(Path::new("my j")), "'my j'");
        assert_eq!(shell_quote(Path::new("it's")), r"'it'\''s'");
    }

    #[test]
    fn ages_use_the_largest_whole_unit() {
        assert_eq!(format_age(Duration::from_secs(7 * 86_400)), "7 d");
        assert_eq!(format_age(Duration::from_secs(90)), "90 s");
        assert_eq!(format_age(Duration::from_secs(5400)), "90 min");
        assert_eq!(format_age(Duration::from_millis(1500)), "1.500 s");
    }

    #[test]
    fn gaps_are_described() {
        let mut gap = RecordGap {
            positions: 10..1010,
            reason: GapReason::BytesLimit,
            time: Some(1_441_812_279_000_000_000..=1_441_812_280_000_000_000),
            producers: vec![ProducerGap {
                producer: 7,
                epoch: 2,
                sequences: 1..=900,
                records: 900,
            }],
            is_complete: true,
        };
        assert_eq!(
            super::describe_gap(&gap),
            "1,000 records are missing (positions 10..1010): dropped: size retention; appended from \
             2015-09-09 15:24:39Z to 2015-09-09 15:24:40Z; 900 records of producer 7 epoch 2, sequences 1 to 900"
        );
        gap.is_complete = false;
        assert!(
            super::describe_gap(&gap)
                .contains("; of a longer stretch that these are part of: appended")
        );
        gap = RecordGap { positions: 3..4, time: None, producers: Vec::new(), ..gap };
        gap.reason = GapReason::Damaged;
        assert_eq!(super::describe_gap(&gap), "1 record is missing (position 3): damaged");
    }
}
