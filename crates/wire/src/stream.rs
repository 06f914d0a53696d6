//! One direction of a TCP connection: segments in any order in, bytes of the stream in order out.
//!
//! A byte is delivered once, as it was first captured. Bytes behind a hole wait for it, in bounded
//! memory; a hole becomes a *gap* when the receiver acknowledges bytes beyond it (then they were
//! received, so the capture lost them), when the memory is used up, or when the connection ends.
//! What the capture cut from a packet (snaplen) is a gap at once.
//!
//! After a gap, delivery continues with the first byte of a segment: observers look for messages
//! there. The rest of a segment whose start is in the gap belongs to the gap.
//!
//! Bytes have the time of the packet in which they were captured, but no earlier one than bytes
//! before them: a receiver cannot read a byte before those that precede it.
//!
//! Sequence numbers wrap around; positions are 64-bit numbers whose low half is the sequence
//! number.

use std::collections::BTreeMap;

/// Maximum distance of a plausible segment from the next expected byte, in bytes. TCP's largest
/// window is 2^30; a capture that lost more than 2^28 bytes of one direction without a sign of the
/// other one starts the connection anew.
const AHEAD_MAX: u64 = 1 << 28;
/// A packet in order that is this much earlier than the bytes before it: the clock was set back.
const CLOCK_STEP_NS: u64 = 10_000_000;
/// As [`AHEAD_MAX`], behind what the receiver has acknowledged. Only duplicates are there.
const BEHIND_MAX: u64 = 1 << 24;
/// Segments inside of a gap after which the acknowledgement that made it was false.
const FALSE_GAP_SEGMENTS: u8 = 3;
/// Memory of one stream for bytes behind a hole. A receiver's window on a fast path is some MiB;
/// what does not fit makes the hole a gap.
const STREAM_BUFFER_MAX: usize = 1 << 20;
/// Memory of a buffered piece beside its bytes: entry of the tree and allocation.
const PIECE_OVERHEAD: usize = 96;

/// Receives the bytes of a stream in order.
pub(crate) trait StreamSink {
    /// `sequence` is the number of the first byte.
    fn bytes(&mut self, sequence: u32, time: u64, bytes: &[u8]);

    /// The next `count` bytes of the stream were not captured.
    fn missing(&mut self, count: u64);
}

/// Memory for bytes behind holes, shared by all streams.
pub(crate) struct BufferMemory {
    used: usize,
    limit: usize,
}

impl BufferMemory {
    pub(crate) fn new(limit: usize) -> BufferMemory {
        BufferMemory { used: 0, limit }
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

/// Payload of a packet.
#[derive(Clone, Copy)]
pub(crate) struct PayloadSegment<'a> {
    pub(crate) time: u64,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
    /// Size on the network.
    pub(crate) length: u64,
    /// Whether the stream ends behind it.
    pub(crate) is_last: bool,
}

/// What a segment was in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    /// It has no payload.
    Empty,
    InOrder,
    /// Bytes before it are missing, or bytes after it were seen before it.
    Reordered,
    /// Some of its bytes were seen before.
    Retransmitted,
}

#[derive(Default)]
pub(crate) struct StreamAssembler {
    position: Option<AssemblyPosition>,
    /// Position behind the last byte of the stream.
    end: Option<u64>,
    /// Time of the last delivered byte.
    time: u64,
    /// Whether a gap precedes the next byte.
    is_after_gap: bool,
    /// The gap before the next byte, if only an acknowledgement has made it.
    acknowledged_gap: Option<AcknowledgedGap>,
    /// Captured bytes behind holes, by position. Pieces do not overlap.
    pieces: BTreeMap<u64, StreamPiece>,
    /// Memory of `pieces`.
    buffered: usize,
}

/// Bytes that were not captured when the receiver acknowledged them. Nothing behind them was.
#[derive(Clone, Copy)]
struct AcknowledgedGap {
    start: u64,
    /// Segments inside of it since then.
    segments: u8,
}

#[derive(Clone, Copy)]
struct AssemblyPosition {
    /// Of the next byte to deliver.
    next: u64,
    /// Behind the highest byte seen.
    highest: u64,
    /// Up to which the receiver acknowledged.
    acknowledged: u64,
}

struct StreamPiece {
    time: u64,
    /// Whether its first byte is that of a segment.
    starts_segment: bool,
    content: PieceBytes,
}

enum PieceBytes {
    Captured(Box<[u8]>),
    /// Bytes that the capture cut from a packet.
    Cut(u64),
}

impl PieceBytes {
    fn length(&self) -> u64 {
        match self {
            PieceBytes::Captured(bytes) => bytes.len() as u64,
            PieceBytes::Cut(length) => *length,
        }
    }

    fn memory(&self) -> usize {
        match self {
            PieceBytes::Captured(bytes) => bytes.len() + PIECE_OVERHEAD,
            PieceBytes::Cut(_) => PIECE_OVERHEAD,
        }
    }
}

impl StreamAssembler {
    /// Sets the sequence number of the next byte, unless a byte was seen before.
    pub(crate) fn start(&mut self, sequence: u32) {
        if self.position.is_none() {
            // A whole turn above zero, so that positions before it exist.
            let next = (1 << 32) | u64::from(sequence);
            self.position = Some(AssemblyPosition { next, highest: next, acknowledged: next });
        }
    }

    /// Whether all bytes of a stream that has ended were delivered.
    pub(crate) fn is_complete(&self) -> bool {
        self.position.is_some_and(|position| self.end.is_some_and(|end| end <= position.next))
    }

    /// The stream ends behind the bytes that were seen: its sender has reset the connection.
    pub(crate) fn end_here(&mut self) {
        self.end = self.position.map(|position| position.highest);
    }

    /// Whether the end of the stream is known.
    pub(crate) fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// Whether the bytes before `sequence` are more than the stream has: its end was none.
    pub(crate) fn is_behind_end(&self, sequence: u32) -> bool {
        self.position.is_some_and(|at| self.end.is_some_and(|end| at.unwrap(sequence) > end))
    }

    /// Whether `sequence` is the first byte of the stream and none was seen.
    pub(crate) fn is_at_first_byte(&self, sequence: u32) -> bool {
        self.position.is_none_or(|at| at.highest as u32 == sequence && at.next == at.highest)
    }

    /// Whether a segment of this connection can have this sequence number.
    pub(crate) fn is_plausible_segment(&self, sequence: u32) -> bool {
        self.position.is_none_or(|position| {
            let start = position.unwrap(sequence);
            start <= position.next + AHEAD_MAX && start + BEHIND_MAX >= position.acknowledged
        })
    }

    /// Whether the receiver can acknowledge the bytes before this sequence number.
    pub(crate) fn is_plausible_acknowledgement(&self, sequence: u32) -> bool {
        // One more than for a segment: the end of the stream is acknowledged like a byte.
        self.is_plausible_segment(sequence)
    }

    /// Reads a segment. The caller has checked that it is plausible.
    pub(crate) fn segment(
        &mut self,
        segment: &PayloadSegment<'_>,
        memory: &mut BufferMemory,
        sink: &mut dyn StreamSink,
    ) -> SegmentKind {
        self.start(segment.sequence);
        let Some(position) = &mut self.position else { return SegmentKind::Empty };
        let start = position.unwrap(segment.sequence);
        let end = start + segment.length;
        if segment.is_last && end >= position.next {
            self.end = Some(end);
        } else if self.end.is_some_and(|known| known < end) {
            // A segment that others have sent, or a damaged one.
            self.end = None;
        }
        if segment.length == 0 {
            return SegmentKind::Empty;
        }
        let was_highest = position.highest;
        position.highest = was_highest.max(end);
        if end <= position.next && !self.is_gap_false(start) {
            return SegmentKind::Retransmitted;
        }
        let Some(position) = &mut self.position else { return SegmentKind::Empty };
        if start <= position.next && self.pieces.is_empty() {
            let kind = match start == position.next {
                true => SegmentKind::InOrder,
                false => SegmentKind::Retransmitted,
            };
            self.deliver(start, segment, sink);
            return kind;
        }
        let starts_at_next = start == position.next;
        let delivered_before = start < position.next;
        let has_known_bytes = self.insert(start, end, segment, memory) || delivered_before;
        self.drain(memory, sink);
        while self.buffered > STREAM_BUFFER_MAX || memory.used > memory.limit {
            if !self.give_up_hole(memory, sink) {
                break;
            }
        }
        match has_known_bytes {
            true => SegmentKind::Retransmitted,
            false if starts_at_next && was_highest <= start => SegmentKind::InOrder,
            false => SegmentKind::Reordered,
        }
    }

    /// Whether a segment that starts inside of the last gap shows that the gap is none: the sender
    /// has not sent these bytes when somebody acknowledged them. The stream then continues with the
    /// segment, as after a gap. A receiver drops such an acknowledgement (RFC 9293, 3.10.7.4).
    fn is_gap_false(&mut self, start: u64) -> bool {
        let Some(position) = &mut self.position else { return false };
        let Some(gap) = self.acknowledged_gap.as_mut().filter(|gap| gap.start <= start) else {
            return false;
        };
        gap.segments += 1;
        if gap.segments < FALSE_GAP_SEGMENTS {
            return false;
        }
        let last = self.pieces.iter().next_back();
        let highest = last.map_or(start, |(at, piece)| at + piece.content.length());
        *position = AssemblyPosition { next: start, highest, acknowledged: start };
        (self.acknowledged_gap, self.is_after_gap) = (None, true);
        true
    }

    /// The receiver has all bytes before `sequence`. Those that were not captured will not come.
    pub(crate) fn acknowledge(
        &mut self,
        sequence: u32,
        memory: &mut BufferMemory,
        sink: &mut dyn StreamSink,
    ) {
        let Some(position) = &mut self.position else { return };
        let mut acknowledged = position.unwrap(sequence);
        if let Some(end) = self.end {
            acknowledged = acknowledged.min(end);
        }
        position.acknowledged = position.acknowledged.max(acknowledged);
        while let Some(next) = self.position.map(|position| position.next) {
            if acknowledged <= next {
                return;
            }
            let hole_end = self.pieces.keys().next().map_or(acknowledged, |first| *first);
            self.skip_to(hole_end.min(acknowledged), sink);
            let is_last = self.pieces.is_empty();
            self.acknowledged_gap = is_last.then_some(AcknowledgedGap { start: next, segments: 0 });
            self.drain(memory, sink);
        }
    }

    /// Delivers what is buffered, with gaps for the holes.
    pub(crate) fn finish(&mut self, memory: &mut BufferMemory, sink: &mut dyn StreamSink) {
        while self.give_up_hole(memory, sink) {}
    }

    /// Makes the first hole a gap. Returns whether there was one.
    fn give_up_hole(&mut self, memory: &mut BufferMemory, sink: &mut dyn StreamSink) -> bool {
        let Some(first) = self.pieces.keys().next().copied() else { return false };
        self.skip_to(first, sink);
        self.drain(memory, sink);
        true
    }

    fn skip_to(&mut self, target: u64, sink: &mut dyn StreamSink) {
        let Some(position) = &mut self.position else { return };
        if target > position.next {
            self.is_after_gap = true;
            sink.missing(target - position.next);
            position.next = target;
            position.highest = position.highest.max(target);
        }
    }

    /// Delivers the bytes of a segment from the next position on.
    fn deliver(&mut self, start: u64, segment: &PayloadSegment<'_>, sink: &mut dyn StreamSink) {
        let Some(position) = &mut self.position else { return };
        let known = usize::try_from(position.next - start).unwrap_or(usize::MAX);
        let bytes = segment.payload.get(known..).unwrap_or_default();
        if !bytes.is_empty() && (known == 0 || !self.is_after_gap) {
            (self.is_after_gap, self.acknowledged_gap) = (false, None);
            let is_step = segment.time.saturating_add(CLOCK_STEP_NS) < self.time;
            self.time = if is_step { segment.time } else { self.time.max(segment.time) };
            let sequence = position.next as u32;
            position.next += bytes.len() as u64;
            sink.bytes(sequence, self.time, bytes);
        }
        self.skip_to(start + segment.length, sink);
    }

    /// Buffers those bytes of a segment that are neither delivered nor buffered. Returns whether
    /// some of them were buffered before.
    fn insert(
        &mut self,
        start: u64,
        end: u64,
        segment: &PayloadSegment<'_>,
        memory: &mut BufferMemory,
    ) -> bool {
        let next = self.position.map_or(start, |position| position.next);
        let captured_end = start + segment.payload.len() as u64;
        let mut cursor = start.max(next);
        let mut has_known_bytes = false;
        while cursor < end {
            let before = self.pieces.range(..=cursor).next_back();
            let known_end = before.map_or(0, |(at, piece)| at + piece.content.length());
            if known_end > cursor {
                has_known_bytes = true;
                cursor = known_end;
                continue;
            }
            let following = self.pieces.range(cursor..).next().map_or(end, |(at, _)| *at);
            let hole_end = following.min(end);
            let bytes_end = hole_end.min(captured_end);
            if cursor < bytes_end {
                let range = (cursor - start) as usize..(bytes_end - start) as usize;
                let bytes: Box<[u8]> = segment.payload[range].into();
                let content = PieceBytes::Captured(bytes);
                let starts_segment = cursor == start;
                let piece = StreamPiece { time: segment.time, starts_segment, content };
                self.buffer(cursor, piece, memory);
            }
            let cut_start = cursor.max(bytes_end);
            if cut_start < hole_end {
                let content = PieceBytes::Cut(hole_end - cut_start);
                let piece = StreamPiece { time: segment.time, starts_segment: false, content };
                self.buffer(cut_start, piece, memory);
            }
            cursor = hole_end;
        }
        has_known_bytes
    }

    fn buffer(&mut self, at: u64, piece: StreamPiece, memory: &mut BufferMemory) {
        let size = piece.content.memory();
        self.buffered += size;
        memory.used += size;
        self.pieces.insert(at, piece);
    }

    /// Delivers the buffered pieces that follow the delivered bytes.
    fn drain(&mut self, memory: &mut BufferMemory, sink: &mut dyn StreamSink) {
        while let Some(entry) = self.pieces.first_entry() {
            let Some(position) = &mut self.position else { return };
            if *entry.key() > position.next {
                return;
            }
            let piece = entry.remove();
            let size = piece.content.memory();
            self.buffered -= size;
            memory.used -= size;
            let sequence = position.next as u32;
            position.next += piece.content.length();
            match piece.content {
                PieceBytes::Captured(bytes) if piece.starts_segment || !self.is_after_gap => {
                    (self.is_after_gap, self.acknowledged_gap) = (false, None);
                    self.time = self.time.max(piece.time);
                    sink.bytes(sequence, self.time, &bytes);
                }
                content => {
                    self.is_after_gap = true;
                    sink.missing(content.length());
                }
            }
        }
    }
}

impl AssemblyPosition {
    /// The position closest to the next one that has this sequence number.
    fn unwrap(&self, sequence: u32) -> u64 {
        let distance = sequence.wrapping_sub(self.next as u32) as i32;
        self.next.wrapping_add_signed(i64::from(distance))
    }
}
