//! Frames of the client.

use super::frame::{END_HEADERS, END_STREAM, FrameKind, Http2FrameHeader, parse_frame};
use super::header_block::HeaderBlocks;
use super::streams::Streams;
use crate::message_reader::{HeaderParse, MessageHandler};
use crate::observer::{FlowDirection, OperationSink, PacketTime};

/// The frame that is being read, and the state of the direction.
pub(super) struct FrameState {
    pub(super) frame: Option<Http2FrameHeader>,
    pub(super) blocks: HeaderBlocks,
    /// Stream of HEADERS whose block continues, and whether it ends the stream.
    pub(super) continued: Option<(u32, bool)>,
}

impl FrameState {
    pub(super) fn new() -> FrameState {
        FrameState { frame: None, blocks: HeaderBlocks::new(), continued: None }
    }

    pub(super) fn memory(&self) -> usize {
        self.blocks.memory()
    }

    pub(super) fn begin(&mut self, frame: Http2FrameHeader) {
        self.frame = Some(frame);
        self.blocks.start_payload();
    }

    pub(super) fn read_body(&mut self, bytes: &[u8]) -> Option<u64> {
        if self.is_body_ignored() {
            return Some(u64::MAX);
        }
        self.blocks.push_payload(bytes);
        Some(bytes.len() as u64)
    }

    pub(super) fn is_body_ignored(&self) -> bool {
        self.frame.is_none_or(|frame| {
            matches!(frame.kind, FrameKind::Data | FrameKind::Other | FrameKind::Preface)
        })
    }

    /// The stream whose header block ends with a frame, and whether that ends the stream.
    pub(super) fn block_end(&mut self, frame: &Http2FrameHeader) -> Option<(u32, bool)> {
        let ends_stream = frame.flags & END_STREAM != 0;
        let block = match frame.kind {
            FrameKind::Headers => (frame.stream, ends_stream),
            FrameKind::Continuation => self.continued.filter(|one| one.0 == frame.stream)?,
            _ => return None,
        };
        if frame.flags & END_HEADERS == 0 {
            self.continued = Some(block);
            return None;
        }
        self.continued = None;
        Some(block)
    }

    /// Bytes of a header block, or whole frames, were not captured.
    pub(super) fn forget_table(&mut self) {
        self.blocks.forget_table();
        self.continued = None;
    }
}

/// Reads frames of the client.
pub(super) struct ClientFrames<'a> {
    pub(super) state: &'a mut FrameState,
    pub(super) streams: &'a mut Streams,
}

impl MessageHandler for ClientFrames<'_> {
    type Header = Http2FrameHeader;

    fn parse(&self, bytes: &[u8]) -> HeaderParse<Http2FrameHeader> {
        parse_frame(bytes, FlowDirection::ToServer)
    }

    fn is_expected(&self, frame: &Http2FrameHeader) -> bool {
        frame.is_usual
    }

    fn begin(
        &mut self,
        start: PacketTime,
        frame: Http2FrameHeader,
        bytes: u64,
        is_synchronised: bool,
        sink: &mut dyn OperationSink,
    ) {
        self.state.begin(frame);
        let is_of_request =
            matches!(frame.kind, FrameKind::Headers | FrameKind::Data | FrameKind::Continuation);
        if is_of_request && is_synchronised {
            let is_headers = frame.kind == FrameKind::Headers;
            self.streams.request_frame(frame.stream, is_headers, start, bytes, sink);
        }
    }

    fn read_body(&mut self, bytes: &[u8], _: bool, _: &mut dyn OperationSink) -> Option<u64> {
        self.state.read_body(bytes)
    }

    fn is_body_ignored(&self) -> bool {
        self.state.is_body_ignored()
    }

    fn end(&mut self, time: PacketTime, sink: &mut dyn OperationSink) {
        let Some(frame) = self.state.frame.take() else { return };
        match frame.kind {
            FrameKind::Headers | FrameKind::Continuation => {
                let streams = &mut *self.streams;
                self.state.blocks.decode(&frame, &mut |name, value| {
                    streams.request_header(frame.stream, name, value);
                });
                let block = self.state.block_end(&frame);
                if block.is_some() {
                    self.streams.request_headers_end(frame.stream);
                }
                let ends_stream = block.is_some_and(|block| block.1);
                self.streams.request_frame_end(frame.stream, time, ends_stream, sink);
            }
            FrameKind::Data => {
                let ends_stream = frame.flags & END_STREAM != 0;
                self.streams.request_frame_end(frame.stream, time, ends_stream, sink);
            }
            FrameKind::ResetStream => self.streams.cancel(frame.stream, sink),
            _ => {}
        }
    }

    fn on_gap(&mut self, _: &mut dyn OperationSink) {
        let Some(frame) = self.state.frame.take() else { return };
        self.streams.set_gap(frame.stream);
        if matches!(frame.kind, FrameKind::Headers | FrameKind::Continuation) {
            self.state.forget_table();
        }
    }

    fn lose_position(&mut self, _: &mut dyn OperationSink) {
        self.state.forget_table();
        self.streams.lose_requests();
    }
}
