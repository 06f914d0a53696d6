//! Merges of parts: the small ones of an hour become one, so that a search opens few files.
//!
//! The merged part is written in the place of the last one, and its footer says which ones before
//! that it has replaced: after a kill at any time a trace is in one of them, or in both, until the
//! replaced files are removed.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;

use model::{TraceId, TraceReader, TraceSpans};

use super::trace_part::{PartEncoder, TraceFooter, TracePart};
use super::{PartEntry, TraceFiles, TraceStore, append};
use crate::error::Result;
use crate::resolution::HOUR;

/// Maximum size of the parts of a merge, and as a share of the size of all: the oldest part is
/// removed as a whole. A part of more than half of it is not merged again.
const MERGED_BYTES_MAX: u64 = 32 << 20;
const MERGED_SHARE: u64 = 8;
/// Maximum number of parts of a merge: their files are open together.
const MERGED_PARTS_MAX: usize = 64;
/// Parts of an hour that is not over from which they are merged, and their maximum size.
const OPEN_PARTS: usize = 8;
const OPEN_BYTES_MAX: u64 = 1 << 20;
/// Maximum memory of the blocks that are merged at a time, as their parts say: the largest ones.
const BLOCKS_BYTES_MAX: usize = 96 << 20;

/// A merge of parts.
pub(crate) struct TraceMerge {
    files: TraceFiles,
    /// Ascending, without others between.
    parts: Vec<PartEntry>,
}

/// A merged part: numbers of the parts in it, its length and footer.
pub(crate) struct MergedPart {
    numbers: Range<u64>,
    last: u64,
    length: u64,
    footer: TraceFooter,
}

impl TraceStore {
    /// Parts that should be merged.
    pub(crate) fn begin_merge(&self, now: i64) -> Option<TraceMerge> {
        let open_hour = now.div_euclid(HOUR);
        let bytes_max = MERGED_BYTES_MAX.min(self.options.bytes_max / MERGED_SHARE);
        // Journal and hour.
        let place = |part: &PartEntry| {
            let footer = part.footer.filter(|_| !part.is_unmergeable)?;
            let hour = footer.first.div_euclid(HOUR);
            let max = if hour < open_hour { u64::MAX } else { OPEN_BYTES_MAX };
            (part.length <= max.min(bytes_max / 2)).then_some((footer.journal, hour))
        };
        let is_same = |a: &PartEntry, b: &PartEntry| place(a).is_some() && place(a) == place(b);
        for mut run in self.parts.chunk_by(is_same) {
            let Some((_, hour)) = run.first().and_then(place) else { continue };
            let least = if hour < open_hour { 2 } else { OPEN_PARTS };
            while !run.is_empty() {
                let mut bytes = 0_u64;
                let fits = |part: &&PartEntry| {
                    bytes = bytes.saturating_add(part.length);
                    bytes <= bytes_max
                };
                let count = run.iter().take(MERGED_PARTS_MAX).take_while(fits).count();
                let (parts, rest) = run.split_at(count.max(1));
                if parts.len() >= least {
                    return Some(TraceMerge { files: self.files.clone(), parts: parts.to_vec() });
                }
                run = rest;
            }
        }
        None
    }

    /// A part has the place of others.
    pub(crate) fn finish_merge(&mut self, merged: &MergedPart) {
        let is_replaced = |part: &mut PartEntry| merged.numbers.contains(&part.number);
        self.replaced.extend(self.parts.extract_if(.., is_replaced));
        if let Some(part) = self.parts.iter_mut().find(|part| part.number == merged.last) {
            (part.length, part.footer) = (merged.length, Some(merged.footer));
        }
    }

    /// The first parts of a merge that failed stay as they are until the next opening.
    pub(crate) fn fail_merge(&mut self, merge: &TraceMerge, parts: usize) {
        for part in &mut self.parts {
            let mut failed = merge.parts.iter().take(parts);
            part.is_unmergeable |= failed.any(|of| of.number == part.number);
        }
    }
}

/// Traces of a block: id, whether it is cut, and its spans.
type BlockTraces = std::vec::IntoIter<(TraceId, (bool, Vec<u8>))>;

/// Reads the traces of a part by ascending id, block by block.
struct PartCursor<'p, 'r> {
    part: &'p TracePart<'r>,
    next_block: usize,
    traces: std::iter::Peekable<BlockTraces>,
}

impl PartCursor<'_, '_> {
    fn peek(&mut self) -> Result<Option<TraceId>> {
        while self.traces.peek().is_none() && self.next_block < self.part.blocks() {
            let bytes = self.part.block(self.next_block)?;
            self.next_block = self.next_block.saturating_add(1);
            let mut traces = Vec::new();
            for spans in TraceReader::new(&bytes) {
                let TraceSpans { trace_id, is_cut, spans } = spans?;
                traces.push((trace_id, (is_cut, spans.to_owned())));
            }
            self.traces = traces.into_iter().peekable();
        }
        Ok(self.traces.peek().map(|(trace_id, _)| *trace_id))
    }
}

impl TraceMerge {
    /// Writes the merged part durably; `None` if the parts take too much memory.
    pub(crate) fn run(&self) -> Result<Option<MergedPart>> {
        let numbers = self.parts.iter().map(|part| part.number);
        let files = numbers.map(|number| self.files.open(number)).collect::<Result<Vec<_>>>()?;
        let readers = files.iter().map(|file| move |offset, length| file.read(offset, length));
        let readers: Vec<_> = readers.collect();
        let (mut parts, mut footers, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
        for (file, read) in files.iter().zip(&readers) {
            let footer = TraceFooter::read(read, file.length).map_err(|it| file.locate(it))?;
            let part = TracePart::open(&footer, file.length, read).map_err(|it| file.locate(it))?;
            let largest = (0..part.blocks()).map(|block| part.unpacked(block)).max();
            bytes = bytes.saturating_add(largest.unwrap_or(0));
            if bytes > BLOCKS_BYTES_MAX {
                break;
            }
            parts.push(part);
            footers.push(footer);
        }
        let (Some(first), Some(last)) = (self.parts.first(), parts.len().checked_sub(1)) else {
            return Ok(None);
        };
        let (Some(end), Some(footer)) = (self.parts.get(last), footers.get(last)) else {
            return Ok(None);
        };
        if last == 0 {
            return Ok(None);
        }
        let mut cursors: Vec<_> = parts
            .iter()
            .map(|part| PartCursor {
                part,
                next_block: 0,
                traces: Vec::new().into_iter().peekable(),
            })
            .collect();
        let mut encoder = PartEncoder::default();
        loop {
            let mut next: Option<TraceId> = None;
            for (cursor, file) in cursors.iter_mut().zip(&files) {
                let found = cursor.peek().map_err(|error| file.locate(error))?;
                next = next.into_iter().chain(found).min();
            }
            let Some(trace_id) = next else { break };
            let mut of = (false, Vec::new());
            for cursor in &mut cursors {
                while let Some((_, trace)) = cursor.traces.next_if(|(id, _)| *id == trace_id) {
                    append(&mut of, &TraceSpans { trace_id, is_cut: trace.0, spans: &trace.1 });
                }
            }
            encoder.push(TraceSpans { trace_id, is_cut: of.0, spans: &of.1 })?;
        }
        let mut origin = footer.origin();
        for footer in &footers {
            origin.first = origin.first.min(footer.first);
            origin.last = origin.last.max(footer.last);
            origin.end = origin.end.max(footer.end);
        }
        let from = first.footer.and_then(|footer| footer.from).unwrap_or(first.number);
        origin.from = Some(from);
        let (length, footer) = self.files.write(end.number, &encoder.finish(&origin)?)?;
        let (numbers, last) = (from..end.number, end.number);
        Ok(Some(MergedPart { numbers, last, length, footer }))
    }
}
