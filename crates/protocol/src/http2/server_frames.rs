//! Frames of the server.

use super::client_frames::FrameState;
use super::frame::{END_STREAM, FrameKind, Http2FrameHeader, error_name, parse_frame};
use super::streams::Streams;
use crate::message_reader::{HeaderParse, MessageHandler};
use crate::observer::{FlowDirection, NotMeasuredReason, OperationSink, PacketTime};

/// Reads frames of the server.
pub(super) struct ServerFrames<'a> {
    pub(super) state: &'a mut FrameState,
    pub(super) streams: &'a mut Streams,
}

impl MessageHandler for ServerFrames<'_> {
    type Header = Http2FrameHeader;

    fn parse(&self, bytes: &[u8]) -> HeaderParse<Http2FrameHeader> {
        parse_frame(bytes, FlowDirection::ToClient)
    }

    fn is_expected(&self, frame: &Http2FrameHeader) -> bool {
        frame.is_usual && (frame.stream == 0 || self.streams.is_known(frame.stream))
    }

    fn begin(
        &mut self,
        start: PacketTime,
        frame: Http2FrameHeader,
        bytes: u64,
        is_synchronised: bool,
        _: &mut dyn OperationSink,
    ) {
        self.state.begin(frame);
        if !is_synchronised {
            self.streams.set_gap(frame.stream);
        }
        if !matches!(frame.kind, FrameKind::Other | FrameKind::GoAway | FrameKind::PushPromise) {
            self.streams.response_frame(frame.stream, start, bytes);
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
                    streams.response_header(frame.stream, name, value);
                });
                if let Some((stream, true)) = self.state.block_end(&frame) {
                    self.streams.response_end(stream, time, None, sink);
                }
            }
            // The promised response is not that of a request.
            FrameKind::PushPromise => self.state.blocks.decode(&frame, &mut |_, _| {}),
            FrameKind::Data if frame.flags & END_STREAM != 0 => {
                self.streams.response_end(frame.stream, time, None, sink);
            }
            FrameKind::ResetStream => {
                let code = self.state.blocks.payload().first_chunk();
                let error = error_name(code.map_or(u32::MAX, |code| u32::from_be_bytes(*code)));
                self.streams.response_end(frame.stream, time, Some(error), sink);
            }
            FrameKind::GoAway => {
                let Some(last) = self.state.blocks.payload().first_chunk() else { return };
                let last = u32::from_be_bytes(*last) & i32::MAX as u32;
                // The server ignores the later ones; the client sends them on another connection.
                let requests = self.streams.drain(last);
                if requests > 0 {
                    sink.not_measured(requests, NotMeasuredReason::ConnectionEnd);
                }
            }
            _ => {}
        }
    }

    fn on_gap(&mut self, _: &mut dyn OperationSink) {
        let Some(frame) = self.state.frame.take() else { return };
        self.streams.set_gap(frame.stream);
        if !self.state.is_body_ignored() {
            self.state.forget_table();
        }
    }

    fn lose_position(&mut self, sink: &mut dyn OperationSink) {
        self.state.forget_table();
        self.on_resync(sink);
    }

    /// The requests in flight may have been answered, in part or as a whole.
    fn on_resync(&mut self, sink: &mut dyn OperationSink) {
        let requests = self.streams.drain(0);
        if requests > 0 {
            sink.not_measured(requests, NotMeasuredReason::Gap);
        }
    }
}
