//! Encoding of row times.
//!
//! ```text
//! coding  u8   0 runs, 1 columns; the shorter is written
//! runs, until all rows are encoded, each:
//!   rows      varint number of rows with the same distance and span, minus one
//!   distance  zigzag ns: start minus the end of the previous row; minus 0 for the first row
//!   span      varint ns: end minus start
//! columns: starts, then spans, each a length and a pco stream of i64 (github.com/pcodec/pcodec)
//! ```
//! Rows are ordered by end. Differences wrap around.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use model::wire::{WireReader, put_bytes, put_varint, put_zigzag};

use crate::column;

const RUNS: u8 = 0;
const COLUMNS: u8 = 1;
/// Average run length below which columns are tried too.
const RUN_ROWS_FEW: usize = 4;

pub(crate) fn put(out: &mut Vec<u8>, times: &[(i64, i64)]) {
    let start = out.len();
    out.push(RUNS);
    let runs = put_runs(out, times);
    if runs.saturating_mul(RUN_ROWS_FEW) <= times.len() {
        return;
    }
    let mut columns = vec![COLUMNS];
    put_bytes(&mut columns, &column::put(&times.iter().map(|time| time.0).collect::<Vec<_>>()));
    let spans: Vec<i64> = times.iter().map(|&(start, end)| end.wrapping_sub(start)).collect();
    put_bytes(&mut columns, &column::put(&spans));
    if columns.len() < out.len().saturating_sub(start) {
        out.truncate(start);
        out.extend(columns);
    }
}

fn put_runs(out: &mut Vec<u8>, times: &[(i64, i64)]) -> usize {
    let (mut before, mut rest, mut runs) = (0i64, times, 0usize);
    let step = |before: i64, (start, end): (i64, i64)| {
        (start.wrapping_sub(before), end.wrapping_sub(start))
    };
    while let Some((&first, others)) = rest.split_first() {
        let (distance, span) = step(before, first);
        before = first.1;
        rest = others;
        while let Some((&next, others)) = rest.split_first()
            && step(before, next) == (distance, span)
        {
            before = next.1;
            rest = others;
        }
        put_varint(out, others.len().saturating_sub(rest.len()) as u64);
        put_zigzag(out, distance);
        put_varint(out, span as u64);
        runs = runs.saturating_add(1);
    }
    runs
}

pub(crate) fn read(reader: &mut WireReader<'_>, rows: usize) -> model::Result<Vec<(i64, i64)>> {
    let mut times = Vec::new();
    read_into(reader, rows, &mut times)?;
    Ok(times)
}

/// Replaces `times` by what is read.
pub(crate) fn read_into(
    reader: &mut WireReader<'_>,
    rows: usize,
    times: &mut Vec<(i64, i64)>,
) -> model::Result<()> {
    let offset = reader.offset();
    let invalid =
        |found: String, expected| model::Error::Invalid { offset, field: "times", found, expected };
    times.clear();
    match reader.u8("time encoding")? {
        RUNS => {
            times.reserve(rows);
            let mut before = 0i64;
            while times.len() < rows {
                let more = reader.varint("rows of a run")?;
                let (distance, span) = (reader.zigzag("distance")?, reader.varint("span")? as i64);
                if more >= rows.saturating_sub(times.len()) as u64 {
                    return Err(invalid(
                        format!("run of {more} more rows"),
                        "the number of rows of the chunk",
                    ));
                }
                for _ in 0..=more {
                    let start = before.wrapping_add(distance);
                    before = start.wrapping_add(span);
                    times.push((start, before));
                }
            }
        }
        COLUMNS => {
            let starts: Vec<i64> = column::read(reader.bytes("starts")?, rows)?;
            let spans: Vec<i64> = column::read(reader.bytes("spans")?, rows)?;
            let ends = starts.iter().zip(spans).map(|(start, span)| start.wrapping_add(span));
            times.extend(starts.iter().copied().zip(ends));
        }
        found => return Err(invalid(found.to_string(), "0 or 1")),
    }
    if times.iter().any(|time| time.1 < time.0)
        || !times.is_sorted_by_key(|&(start, end)| (end, start))
    {
        return Err(invalid("rows out of order".to_owned(), "rows ordered by end time"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(mut times: Vec<(i64, i64)>) -> usize {
        times.sort_by_key(|&(start, end)| (end, start));
        let mut out = Vec::new();
        put(&mut out, &times);
        let mut reader = WireReader::new(&out);
        assert_eq!(read(&mut reader, times.len()).unwrap(), times);
        reader.finish().unwrap();
        out.len()
    }

    proptest! {
        #[test]
        fn times_round_trip(times in prop::collection::vec((any::<i32>(), 0i64..1000, any::<bool>()), 0..60)) {
            let scale = |far| if far { 1 << 31 } else { 1 };
            check(times.iter().map(|&(start, span, far)| (i64::from(start) * scale(far), i64::from(start) * scale(far) + span)).collect());
        }

        #[test]
        fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), rows in 0usize..300) {
            let _ = read(&mut WireReader::new(&bytes), rows);
        }
    }

    #[test]
    fn regular_times_cost_nothing() {
        assert!(check((0..360).map(|at| (at * 60, at * 60 + 60)).collect()) < 20);
        check(vec![(i64::MIN, i64::MIN), (0, i64::MAX), (i64::MIN, -1)]);
    }
}
