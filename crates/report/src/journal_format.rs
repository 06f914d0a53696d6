//! Texts about a journal: records, limits, gaps, and why it is full. Positions have no thousands
//! separators, so that they can be copied into a command.

use journal::{Compression, FullReason, LimitPolicy, Limits, RecordGap};

use render::bytes::format_bytes;
use render::time::{format_age, format_time};
use render::value_formatter::count;

/// `3 records`, `1 record`.
pub fn format_records(n: u64) -> String {
    format!("{} record{}", count(n), if n == 1 { "" } else { "s" })
}

/// Name on the command line.
pub fn compression_name(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
    }
}

/// Name on the command line.
pub(crate) fn limit_policy_name(policy: LimitPolicy) -> &'static str {
    match policy {
        LimitPolicy::Reject => "reject",
        LimitPolicy::DropOldest => "drop-oldest",
    }
}

/// Retention and full policy as a sentence without its subject.
pub fn describe_limits(limits: &Limits) -> String {
    let size = match limits.bytes_max {
        Some(most) => format!("at most {}", format_bytes(most)),
        None => "limited by the disk".to_owned(),
    };
    let old = match limits.age_max {
        Some(most) => format!("for at most {}", format_age(most)),
        None => "unlimited in time".to_owned(),
    };
    let then = match limits.on_full {
        LimitPolicy::Reject => {
            "when full, appends are rejected until its subscribers have caught up"
        }
        LimitPolicy::DropOldest => {
            "when full, the oldest records are dropped and subscribers get a gap"
        }
    };
    format!("{size}, {old}; {then}")
}

/// Reason why a record did not become durable in time, and a remedy.
pub fn stalled_message(dir: &str) -> String {
    format!(
        "the disk is slow, or the process that writes to it is stopped; list the processes that \
         have the journal open with `fuser {dir}/buffer`"
    )
}

/// Reason why a journal is full, and a remedy.
pub fn full_message(dir: &str, full: &FullReason) -> String {
    let raise = format!("raise the limit (`topdeck journal limit {dir} --max-size …`)");
    let FullReason::RetentionLimit { used_bytes, max_bytes, holder, policy } = full else {
        return format!(
            "no space left on the disk of {dir}; acknowledged records are safe, and appending \
             continues when there is space"
        );
    };
    let used = format!(
        "segments take {} of at most {}",
        format_bytes(*used_bytes),
        format_bytes(*max_bytes)
    );
    match (policy, holder) {
        (LimitPolicy::DropOldest, _) => {
            format!("{used}, no space for another segment; {raise}")
        }
        (LimitPolicy::Reject, None) => format!(
            "{used}, and there is no subscriber, so no segment can be deleted; add one (`topdeck \
             journal subscribers {dir} add NAME`), or {raise}"
        ),
        (LimitPolicy::Reject, Some(name)) => format!(
            "{used}, and {name:?} has not passed the oldest segment; let it catch up, remove it \
             (`topdeck journal subscribers {dir} remove {name}`), or {raise}"
        ),
    }
}

/// `position 7`, `positions 7..10`.
pub fn format_positions(positions: &std::ops::Range<u64>) -> String {
    match positions.end - positions.start {
        1 => format!("position {}", positions.start),
        _ => format!("positions {}..{}", positions.start, positions.end),
    }
}

/// Gap as a sentence.
pub fn describe_gap(gap: &RecordGap) -> String {
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
        let of = if gap.is_complete { "" } else { "of a larger range that includes these: " };
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
            super::describe_gap(&gap).contains("; of a larger range that includes these: appended")
        );
        gap = RecordGap { positions: 3..4, time: None, producers: Vec::new(), ..gap };
        gap.reason = GapReason::Damaged;
        assert_eq!(super::describe_gap(&gap), "1 record is missing (position 3): damaged");
    }
}
