//! Formatting of sizes (powers of 1,024), times (UTC), positions and gaps. Positions have no marks
//! between thousands, so that they can be copied into a command.

use journal::{Compression, FullReason, LimitPolicy, Limits, RecordGap};

use render::bytes::format_bytes;
use render::time::{format_age, format_time};
use render::value_formatter::count;

/// `3 records`, `1 record`.
pub(crate) fn format_records(n: u64) -> String {
    format!("{} record{}", count(n), if n == 1 { "" } else { "s" })
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

/// Why something did not become durable in time, and what to do about it.
pub(crate) fn stalled_message(dir: &str) -> String {
    format!(
        "the disk is slow, or the process that writes to it is stopped; `fuser {dir}/buffer` \
         lists those that have the journal open"
    )
}

/// Why a journal is full, and what to do about it.
pub(crate) fn full_message(dir: &str, full: &FullReason) -> String {
    let raise = format!("raise the limit (`topdeck journal limit {dir} --max-bytes …`)");
    let FullReason::RetentionLimit { used_bytes, max_bytes, holder, policy } = full else {
        return "there is no space left on its disk; what is acknowledged is safe, and appending \
                goes on when there is space"
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

#[cfg(test)]
mod tests {
    use journal::{GapReason, ProducerGap};

    use super::*;

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
            "1,000 records are missing (positions 10..1010): dropped: size retention; appended \
             from 2015-09-09 15:24:39Z to 2015-09-09 15:24:40Z; 900 records of producer 7 epoch \
             2, sequences 1 to 900"
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
