//! Spans of kept traces: a side record of a batch, and the content of the store's blocks.
//!
//! Spans are an OTLP `TracesData` in protobuf, which this crate does not read: two of them one
//! after the other are one with the spans of both. `docs/formats/batch.md` is the specification.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::error::Result;
use crate::wire::{WireReader, put_bytes};

/// Id of a trace.
pub type TraceId = [u8; 16];

const IS_CUT: u8 = 1;

/// Spans of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSpans<'a> {
    /// Their trace.
    pub trace_id: TraceId,
    /// Whether further spans of the trace were left out, because it exceeds a limit.
    pub is_cut: bool,
    /// `TracesData`; empty if only the flag is new.
    pub spans: &'a [u8],
}

/// Writer of spans of traces.
#[derive(Clone, Debug, Default)]
pub struct TraceWriter {
    bytes: Vec<u8>,
    count: u64,
}

impl TraceWriter {
    /// Adds spans.
    pub fn push(&mut self, spans: TraceSpans<'_>) {
        self.bytes.push(if spans.is_cut { IS_CUT } else { 0 });
        self.bytes.extend_from_slice(&spans.trace_id);
        put_bytes(&mut self.bytes, spans.spans);
        self.count = self.count.saturating_add(1);
    }

    /// What was written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Reader of what [`TraceWriter`] wrote; untrusted. It ends after an error.
#[derive(Clone, Debug)]
pub struct TraceReader<'a>(WireReader<'a>);

impl<'a> TraceReader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> TraceReader<'a> {
        TraceReader(WireReader::new(bytes))
    }

    fn read(&mut self) -> Result<TraceSpans<'a>> {
        let flags = self.0.u8("trace")?;
        let trace_id = self.0.array("trace id")?;
        Ok(TraceSpans { trace_id, is_cut: flags & IS_CUT != 0, spans: self.0.bytes("spans")? })
    }
}

impl<'a> Iterator for TraceReader<'a> {
    type Item = Result<TraceSpans<'a>>;

    fn next(&mut self) -> Option<Result<TraceSpans<'a>>> {
        if self.0.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.0 = WireReader::new(&[]);
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_spans_are_read_and_damage_is_an_error() {
        let all = [
            TraceSpans { trace_id: [1; 16], is_cut: false, spans: b"abc" },
            TraceSpans { trace_id: [2; 16], is_cut: true, spans: b"" },
        ];
        let mut writer = TraceWriter::default();
        all.iter().for_each(|spans| writer.push(*spans));
        assert_eq!((writer.len(), writer.bytes().len()), (2, 2 * 18 + 3));
        let read: Vec<_> = TraceReader::new(writer.bytes()).collect::<Result<_>>().unwrap();
        assert_eq!(read, all);
        for end in 1..writer.bytes().len() {
            let found = TraceReader::new(&writer.bytes()[..end]);
            assert_eq!(found.clone().any(|one| one.is_err()), end != 21, "{end}");
            assert!(found.count() <= 2);
        }
    }
}
