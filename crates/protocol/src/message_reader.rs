//! Reader of one direction of a protocol whose messages have a header with their length.
//!
//! It knows positions and times; a [`MessageHandler`] knows the protocol. Within a message of known
//! length a gap loses the message only. Otherwise the position is lost, until a packet starts as a
//! message does.

use crate::message_position::MessagePosition;
use crate::observer::{FlowDirection, OperationSink, PacketTime};
use crate::stream_buffer::StreamBuffer;

/// Result of reading a header.
pub(crate) enum HeaderParse<H> {
    /// A header of `header_bytes`, of a message of `message_bytes` in all.
    Message {
        header: H,
        header_bytes: u64,
        message_bytes: u64,
    },
    Implausible,
    Incomplete,
}

/// Messages of one direction of a protocol.
pub(crate) trait MessageHandler {
    type Header;

    /// The header at the start of bytes.
    fn parse(&self, bytes: &[u8]) -> HeaderParse<Self::Header>;

    /// Whether a message with this header is expected; asked for positions after a gap.
    fn is_expected(&self, header: &Self::Header) -> bool;

    /// A message starts. The reader `is_synchronised` unless it is the first one after a gap.
    fn begin(
        &mut self,
        start: PacketTime,
        header: Self::Header,
        bytes: u64,
        is_synchronised: bool,
        sink: &mut dyn OperationSink,
    );

    /// Reads the body as far as `bytes` allow, and returns the number of bytes that it took,
    /// perhaps more than those; `None` if it requires more. `is_whole` says that no more will
    /// follow.
    fn read_body(
        &mut self,
        bytes: &[u8],
        is_whole: bool,
        sink: &mut dyn OperationSink,
    ) -> Option<u64>;

    /// The message is complete.
    fn end(&mut self, time: PacketTime, sink: &mut dyn OperationSink);

    /// Whether nothing of the body is read: if its last byte was captured, a gap in it changes
    /// nothing.
    fn is_body_ignored(&self) -> bool {
        false
    }

    /// Bytes of the message were not captured.
    fn on_gap(&mut self, sink: &mut dyn OperationSink);

    /// A position was found after it had been lost.
    fn on_resync(&mut self, _: &mut dyn OperationSink) {}

    /// The position was lost.
    fn lose_position(&mut self, sink: &mut dyn OperationSink);
}

/// Position in the messages of a direction.
pub(crate) struct MessageStreamReader {
    direction: FlowDirection,
    buffer: StreamBuffer,
    /// Time of the first byte of the next message, if it has arrived.
    start: Option<PacketTime>,
    /// Bytes of the message that were not taken; `None` between messages.
    remaining: Option<u64>,
    /// Whether the body is only skipped.
    has_gap: bool,
    position: MessagePosition,
}

impl MessageStreamReader {
    pub(crate) fn new(direction: FlowDirection, has_first_byte: bool) -> MessageStreamReader {
        MessageStreamReader {
            direction,
            buffer: StreamBuffer::default(),
            start: None,
            remaining: None,
            has_gap: false,
            position: MessagePosition::at_start(has_first_byte),
        }
    }

    pub(crate) fn position(&self) -> MessagePosition {
        self.position
    }

    pub(crate) fn memory(&self) -> usize {
        self.buffer.memory()
    }

    /// A message starts here.
    pub(crate) fn set_known(&mut self) {
        self.position = MessagePosition::Known;
        self.remaining = None;
        self.start = None;
        self.buffer.clear();
    }

    /// Reads a packet, and looks for the start of a message if the position is not known.
    pub(crate) fn read_packet<H: MessageHandler>(
        &mut self,
        time: PacketTime,
        bytes: &[u8],
        handler: &mut H,
        sink: &mut dyn OperationSink,
    ) {
        if self.position != MessagePosition::Known {
            let at_packet = MessagePosition::at_packet(bytes, |bytes| match handler.parse(bytes) {
                HeaderParse::Message { header, message_bytes, .. } => {
                    handler.is_expected(&header).then_some(message_bytes)
                }
                HeaderParse::Implausible | HeaderParse::Incomplete => None,
            });
            let is_lost = self.position == MessagePosition::Lost;
            if at_packet == MessagePosition::Known || is_lost {
                self.set_known();
                self.position = at_packet;
                if at_packet != MessagePosition::Lost {
                    handler.on_resync(sink);
                }
            }
        }
        self.read(time, time, bytes, handler, sink);
    }

    /// Reads bytes, of which the first arrived at `first` and the last at `time`.
    pub(crate) fn read<H: MessageHandler>(
        &mut self,
        first: PacketTime,
        time: PacketTime,
        bytes: &[u8],
        handler: &mut H,
        sink: &mut dyn OperationSink,
    ) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.read(bytes, |bytes| self.step(first, time, bytes, handler, sink));
        self.buffer = buffer;
    }

    fn step<H: MessageHandler>(
        &mut self,
        first: PacketTime,
        time: PacketTime,
        bytes: &[u8],
        handler: &mut H,
        sink: &mut dyn OperationSink,
    ) -> Option<u64> {
        match self.remaining {
            Some(0) => {
                self.remaining = None;
                if !self.has_gap {
                    handler.end(time, sink);
                }
            }
            Some(remaining) => return self.read_body(remaining, bytes, handler, sink),
            None => {}
        }
        if bytes.is_empty() {
            return None;
        }
        if self.position == MessagePosition::Lost {
            sink.unparsed(self.direction, bytes.len() as u64);
            return Some(bytes.len() as u64);
        }
        let start = *self.start.get_or_insert(first);
        let is_synchronised = self.position == MessagePosition::Known;
        match handler.parse(bytes) {
            HeaderParse::Incomplete => None,
            // A position that was found after a gap must be confirmed by an expected message.
            HeaderParse::Message { header, header_bytes, message_bytes }
                if is_synchronised || handler.is_expected(&header) =>
            {
                self.start = None;
                let is_found = self.position == MessagePosition::Found;
                self.position = self.position.after_message_start();
                self.has_gap = false;
                self.remaining = Some(message_bytes - header_bytes);
                handler.begin(start, header, message_bytes, !is_found, sink);
                Some(header_bytes)
            }
            HeaderParse::Message { .. } | HeaderParse::Implausible => {
                self.lose_position(bytes.len(), handler, sink);
                Some(bytes.len() as u64)
            }
        }
    }

    fn read_body<H: MessageHandler>(
        &mut self,
        remaining: u64,
        bytes: &[u8],
        handler: &mut H,
        sink: &mut dyn OperationSink,
    ) -> Option<u64> {
        if bytes.is_empty() {
            return None;
        }
        let available = bytes.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        let is_whole = available as u64 == remaining;
        let taken = match self.has_gap {
            true => remaining,
            false => match handler.read_body(&bytes[..available], is_whole, sink) {
                Some(taken) => taken.min(remaining),
                None if is_whole => remaining,
                None => return None,
            },
        };
        self.remaining = Some(remaining - taken);
        Some(taken)
    }

    /// `missing` bytes were not captured.
    pub(crate) fn skip<H: MessageHandler>(
        &mut self,
        missing: u64,
        handler: &mut H,
        sink: &mut dyn OperationSink,
    ) {
        let Some(remaining) = self.remaining else {
            return self.lose_position(0, handler, sink);
        };
        let seen = self.buffer.incomplete() as u64;
        let to_end = (remaining + self.buffer.to_skip()).saturating_sub(seen);
        if to_end < missing {
            return self.lose_position(0, handler, sink);
        }
        let is_harmless = handler.is_body_ignored() && to_end > missing;
        if !self.has_gap && !is_harmless {
            handler.on_gap(sink);
            self.has_gap = true;
        }
        self.remaining = (to_end > missing).then_some(to_end - missing);
        self.buffer.clear();
    }

    /// The position is lost, with bytes that cannot be attributed.
    pub(crate) fn lose_position<H: MessageHandler>(
        &mut self,
        bytes: usize,
        handler: &mut H,
        sink: &mut dyn OperationSink,
    ) {
        if self.remaining.is_some() && !self.has_gap {
            handler.on_gap(sink);
        }
        sink.unparsed(self.direction, (bytes + self.buffer.incomplete()) as u64);
        self.set_known();
        self.position = MessagePosition::Lost;
        handler.lose_position(sink);
    }
}
