//! Frame headers of HTTP/2 (RFC 9113).

use crate::message_reader::HeaderParse;
use crate::observer::FlowDirection;

/// Length, type, flags and stream id.
const HEADER_BYTES: usize = 9;

/// First bytes of a client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Default of SETTINGS_MAX_FRAME_SIZE, and the largest one that the observer expects.
const FRAME_BYTES_DEFAULT: u32 = 16 << 10;
const FRAME_BYTES_MAX: u32 = (1 << 24) - 1;

pub(super) const END_STREAM: u8 = 0x01;
pub(super) const END_HEADERS: u8 = 0x04;
pub(super) const PADDED: u8 = 0x08;
pub(super) const PRIORITY: u8 = 0x20;

/// Type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The first bytes of a client.
    Preface,
    Data,
    Headers,
    ResetStream,
    PushPromise,
    GoAway,
    Continuation,
    /// PRIORITY, SETTINGS, PING, WINDOW_UPDATE and extensions.
    Other,
}

/// Header of a frame.
#[derive(Clone, Copy)]
pub(super) struct Http2FrameHeader {
    pub(super) kind: FrameKind,
    pub(super) flags: u8,
    pub(super) stream: u32,
    /// Whether it looks as most frames do; asked for positions after a gap.
    pub(super) is_usual: bool,
}

/// The frame header at the start of bytes.
pub(super) fn parse_frame(bytes: &[u8], direction: FlowDirection) -> HeaderParse<Http2FrameHeader> {
    let preface = PREFACE.len().min(bytes.len());
    if direction == FlowDirection::ToServer
        && preface >= 3
        && bytes[..preface] == PREFACE[..preface]
    {
        if bytes.len() < PREFACE.len() {
            return HeaderParse::Incomplete;
        }
        let size = PREFACE.len() as u64;
        let header =
            Http2FrameHeader { kind: FrameKind::Preface, flags: 0, stream: 0, is_usual: true };
        return HeaderParse::Message { header, header_bytes: size, message_bytes: size };
    }
    let Some(&[l0, l1, l2, kind, flags, s0, s1, s2, s3]) = bytes.first_chunk::<HEADER_BYTES>()
    else {
        return HeaderParse::Incomplete;
    };
    let length = u32::from_be_bytes([0, l0, l1, l2]);
    let stream = u32::from_be_bytes([s0, s1, s2, s3]);
    let is_of_stream = stream % 2 == 1;
    let (frame_kind, flags_allowed, is_plausible) = match kind {
        0x0 => (FrameKind::Data, END_STREAM | PADDED, stream != 0),
        0x1 => {
            let flags = END_STREAM | END_HEADERS | PADDED | PRIORITY;
            (FrameKind::Headers, flags, stream != 0)
        }
        0x2 => (FrameKind::Other, 0, length == 5 && stream != 0),
        0x3 => (FrameKind::ResetStream, 0, length == 4 && stream != 0),
        0x4 => (FrameKind::Other, 1, length.is_multiple_of(6) && stream == 0),
        0x5 => (FrameKind::PushPromise, END_HEADERS | PADDED, stream != 0),
        0x6 => (FrameKind::Other, 1, length == 8 && stream == 0),
        0x7 => (FrameKind::GoAway, 0, length >= 8 && stream == 0),
        0x8 => (FrameKind::Other, 0, length == 4),
        0x9 => (FrameKind::Continuation, END_HEADERS, stream != 0),
        _ => (FrameKind::Other, u8::MAX, true),
    };
    if !is_plausible || stream > i32::MAX as u32 || length > FRAME_BYTES_MAX {
        return HeaderParse::Implausible;
    }
    let is_usual = kind <= 9
        && flags & !flags_allowed == 0
        && length <= FRAME_BYTES_DEFAULT
        && (stream == 0 || is_of_stream);
    HeaderParse::Message {
        header: Http2FrameHeader { kind: frame_kind, flags, stream, is_usual },
        header_bytes: HEADER_BYTES as u64,
        message_bytes: HEADER_BYTES as u64 + u64::from(length),
    }
}

/// Name of an error code of RST_STREAM.
pub(super) fn error_name(code: u32) -> &'static str {
    match code {
        0x0 => "NO_ERROR",
        0x1 => "PROTOCOL_ERROR",
        0x2 => "INTERNAL_ERROR",
        0x3 => "FLOW_CONTROL_ERROR",
        0x4 => "SETTINGS_TIMEOUT",
        0x5 => "STREAM_CLOSED",
        0x6 => "FRAME_SIZE_ERROR",
        0x7 => "REFUSED_STREAM",
        0x8 => "CANCEL",
        0x9 => "COMPRESSION_ERROR",
        0xa => "CONNECT_ERROR",
        0xb => "ENHANCE_YOUR_CALM",
        0xc => "INADEQUATE_SECURITY",
        0xd => "HTTP_1_1_REQUIRED",
        _ => "UNKNOWN_ERROR",
    }
}
