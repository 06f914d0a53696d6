//! Reading the traces of a store: one by its id, all of a time, the ids.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use model::{TraceId, TraceReader, TraceSpans};

use super::trace_part::{self, TraceFooter, TracePart};
use super::{PartEntry, StoredTrace, TraceFiles, TraceHead, append};
use crate::error::{Error, Result};
use crate::resolution::{HOUR, MINUTE};

/// Spans that arrive this long after a range are searched, too.
const LATE_MAX: i64 = HOUR;
/// Clocks of senders may be ahead by this.
const AHEAD_MAX: i64 = 5 * MINUTE;

/// Traces of a store at one time, without its lock.
pub(crate) struct TraceSnapshot {
    pub(super) files: TraceFiles,
    pub(super) heads: Vec<Arc<TraceHead>>,
    pub(super) parts: Vec<PartEntry>,
}

/// A part is skipped.
pub(super) fn missing(error: &Error) -> String {
    format!("traces are missing: {error}")
}

/// Is told how much memory a trace takes while it is read: of the largest block, and of the spans
/// so far. It may stop the reading.
pub type ReserveTrace<'a> = &'a mut dyn FnMut(usize, usize) -> ControlFlow<()>;

/// What a search passes on.
#[derive(Clone, Copy, Debug)]
pub enum TraceSearchStep<'a> {
    /// Spans of a trace.
    Spans(TraceSpans<'a>),
    /// Spans that follow ended before or at this time, in nanoseconds since the Unix epoch, unless
    /// the clock of their sender was ahead by more than five minutes.
    Before(i64),
}

/// Passes on the traces of a head, or those of some ids.
fn each_of_head(
    head: &TraceHead,
    trace_ids: Option<&[TraceId]>,
    each: &mut dyn FnMut(TraceSpans<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut pass = |trace_id: &TraceId, (is_cut, spans): &(bool, Vec<u8>)| {
        each(TraceSpans { trace_id: *trace_id, is_cut: *is_cut, spans })
    };
    match trace_ids {
        None => head.traces.iter().try_for_each(|(trace_id, trace)| pass(trace_id, trace)),
        Some(trace_ids) => {
            let mut found = trace_ids.iter().filter_map(|id| head.traces.get_key_value(id));
            found.try_for_each(|(trace_id, trace)| pass(trace_id, trace))
        }
    }
}

/// Discards what was found since a state: a part that is read now has it, too.
fn discard_after(
    state: Option<(bool, usize)>,
    trace_id: &TraceId,
    found: &mut BTreeMap<TraceId, (bool, Vec<u8>)>,
) {
    match (state, found.get_mut(trace_id)) {
        (Some((is_cut, length)), Some(of)) => {
            of.0 = is_cut;
            of.1.truncate(length);
        }
        _ => drop(found.remove(trace_id)),
    }
}

impl TraceSnapshot {
    /// A trace, from all parts that have spans of it; `None` as well if `reserve` stops it. A part
    /// that cannot be read is skipped. If nothing is found then, the cause is the answer, unless
    /// the part is damaged and may not have the trace.
    pub(crate) fn trace(
        &self,
        trace_id: &TraceId,
        reserve: ReserveTrace<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Option<StoredTrace>> {
        let (mut largest, mut failed) = (0, None);
        let mut found = BTreeMap::<TraceId, (bool, Vec<u8>)>::new();
        let (mut flow, mut is_cut) = (ControlFlow::Continue(()), false);
        let size = |found: &BTreeMap<TraceId, (bool, Vec<u8>)>| {
            found.get(trace_id).map_or(0, |(_, spans)| spans.len())
        };
        // Numbers of parts, and what was found before each of them.
        let mut before: Vec<(u64, Option<(bool, usize)>)> = Vec::new();
        for part in &self.parts {
            let mut is_known = false;
            let state = found.get(trace_id).map(|(is_cut, spans)| (*is_cut, spans.len()));
            before.push((part.number, state));
            let done = self.with_part(part, |opened| {
                let Some(block) = opened.block_of(trace_id) else { return Ok(()) };
                is_known = true;
                largest = opened.unpacked(block).max(largest);
                flow = reserve(largest, size(&found));
                if flow.is_continue() {
                    let block = opened.block(block)?;
                    if let Some(from) = opened.from {
                        let at = before.partition_point(|(number, _)| *number < from);
                        let state = before.get(at).and_then(|(_, state)| *state);
                        discard_after(state, trace_id, &mut found);
                    }
                    trace_part::add_from_block(&block, trace_id, &mut found)?;
                    flow = reserve(largest, size(&found));
                }
                Ok(())
            });
            if let Err(error) = done {
                notes.push(missing(&error));
                is_cut |= is_known;
                if is_known || !matches!(error, Error::Damage { .. }) {
                    failed = Some(error);
                }
            }
            if flow.is_break() {
                return Ok(None);
            }
        }
        for (is_cut, spans) in self.heads.iter().filter_map(|head| head.traces.get(trace_id)) {
            let spans = TraceSpans { trace_id: *trace_id, is_cut: *is_cut, spans };
            append(found.entry(*trace_id).or_default(), &spans);
        }
        match (found.remove(trace_id), failed) {
            (None, Some(error)) => Err(error),
            (found, _)
                if reserve(largest, found.as_ref().map_or(0, |it| it.1.len())).is_continue() =>
            {
                Ok(found.map(|of| StoredTrace { spans: of.1, is_cut: of.0 | is_cut }))
            }
            _ => Ok(None),
        }
    }

    /// Passes on spans of all traces that were received about a range of time, the latest part
    /// first, until told to stop. A trace may come several times. What cannot be read is skipped.
    pub(crate) fn search(
        &self,
        range: &Range<i64>,
        each: &mut dyn FnMut(TraceSearchStep<'_>) -> ControlFlow<()>,
        notes: &mut Vec<String>,
    ) {
        for head in self.heads.iter().rev() {
            if each_of_head(head, None, &mut |spans| each(TraceSearchStep::Spans(spans))).is_break()
            {
                return;
            }
        }
        let is_about = |part: &&PartEntry| {
            part.footer.is_some_and(|footer| {
                footer.first.saturating_sub(LATE_MAX) < range.end
                    && footer.last.saturating_add(AHEAD_MAX) >= range.start
            })
        };
        let parts: Vec<&PartEntry> = self.parts.iter().filter(is_about).collect();
        // The clock may have been set back.
        let mut latest = i64::MIN;
        let before = |part: &&PartEntry| {
            latest = part.footer.map_or(latest, |footer| footer.last.max(latest));
            latest.saturating_add(AHEAD_MAX)
        };
        let before: Vec<i64> = parts.iter().map(before).collect();
        let mut read_from = u64::MAX;
        for (part, before) in parts.into_iter().zip(before).rev() {
            if part.number >= read_from {
                continue;
            }
            let mut flow = each(TraceSearchStep::Before(before));
            if flow.is_continue() {
                let blocks = |opened: &TracePart<'_>| (0..opened.blocks()).collect();
                let each = &mut |spans: TraceSpans<'_>| each(TraceSearchStep::Spans(spans));
                flow = self.each_of_part((part, &mut read_from), &blocks, each, notes);
            }
            if flow.is_break() {
                return;
            }
        }
    }

    /// Passes on all spans of some traces, of each part by ascending id, until told to stop. The
    /// latest part comes first, for the same reason as in a search: a part that was merged since
    /// is the last one of those whose spans it has, which are not read any more.
    pub(crate) fn traces(
        &self,
        trace_ids: &[TraceId],
        each: &mut dyn FnMut(TraceSpans<'_>) -> ControlFlow<()>,
        notes: &mut Vec<String>,
    ) {
        let is_wanted = |trace_id: &TraceId| trace_ids.binary_search(trace_id).is_ok();
        let mut wanted = |spans: TraceSpans<'_>| match is_wanted(&spans.trace_id) {
            true => each(spans),
            false => ControlFlow::Continue(()),
        };
        let mut read_from = u64::MAX;
        for part in self.parts.iter().rev() {
            if part.number >= read_from {
                continue;
            }
            let blocks = |opened: &TracePart<'_>| opened.blocks_of(trace_ids);
            let place = (part, &mut read_from);
            if self.each_of_part(place, &blocks, &mut wanted, notes).is_break() {
                return;
            }
        }
        for head in &self.heads {
            if each_of_head(head, Some(trace_ids), &mut wanted).is_break() {
                return;
            }
        }
    }

    /// Passes on the spans of some blocks of a part, and says from which number on the parts are
    /// read then. What cannot be read is skipped.
    fn each_of_part(
        &self,
        (part, read_from): (&PartEntry, &mut u64),
        blocks: &dyn Fn(&TracePart<'_>) -> Vec<usize>,
        each: &mut dyn FnMut(TraceSpans<'_>) -> ControlFlow<()>,
        notes: &mut Vec<String>,
    ) -> ControlFlow<()> {
        let mut flow = ControlFlow::Continue(());
        let done = self.with_part(part, |opened| {
            let mut done = Ok(());
            for block in blocks(opened) {
                let read = opened.block(block).and_then(|bytes| {
                    for spans in TraceReader::new(&bytes) {
                        flow = each(spans?);
                        if flow.is_break() {
                            break;
                        }
                    }
                    Ok(())
                });
                // Other blocks are read nevertheless.
                done = done.and(read);
                if flow.is_break() {
                    break;
                }
            }
            if let (Ok(()), Some(from)) = (&done, opened.from) {
                *read_from = from;
            }
            done
        });
        notes.extend(done.err().map(|error| missing(&error)));
        flow
    }

    /// Ids of traces that were received since a time.
    pub(crate) fn recent_ids(&self, since: i64) -> Vec<TraceId> {
        let mut ids: Vec<TraceId> =
            self.heads.iter().flat_map(|head| head.traces.keys().copied()).collect();
        let is_recent = |part: &&PartEntry| part.footer.is_some_and(|footer| footer.last >= since);
        for part in self.parts.iter().filter(is_recent) {
            // A damaged part is reported when it is read.
            let _ = self.with_part(part, |opened| {
                ids.extend(opened.trace_ids());
                Ok(())
            });
        }
        ids
    }

    /// Opens a part, unless it was removed since, or was damaged before.
    fn with_part(
        &self,
        part: &PartEntry,
        work: impl FnOnce(&TracePart<'_>) -> Result<()>,
    ) -> Result<()> {
        if part.footer.is_none() {
            return Ok(());
        }
        let done = self.files.with(part.number, |length, read| {
            // A merged part may have taken its place, which has its spans and those of others.
            work(&TracePart::open(&TraceFooter::read(read, length)?, length, read)?)
        });
        match done {
            Err(Error::Io(error)) if error.is_not_found() => Ok(()),
            done => done,
        }
    }
}
