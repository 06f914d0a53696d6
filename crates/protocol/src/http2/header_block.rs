//! Header blocks, which may continue over several frames.

use super::frame::{END_HEADERS, FrameKind, Http2FrameHeader, PADDED, PRIORITY};
use super::hpack::{HeaderDecoder, HeaderName};

/// Larger blocks are not decoded; the table is unknown after them. Servers allow 8 to 16 KiB by
/// default.
const BLOCK_BYTES_MAX: usize = 32 << 10;

/// Allocations above this are freed after use.
const RETAINED_BYTES_MAX: usize = 16 << 10;

/// Collects the payloads of frames, and decodes the blocks in them.
pub(super) struct HeaderBlocks {
    decoder: HeaderDecoder,
    payload: Vec<u8>,
    /// Parts of a block that continues.
    block: Vec<u8>,
    is_too_large: bool,
}

impl HeaderBlocks {
    pub(super) fn new() -> HeaderBlocks {
        HeaderBlocks {
            decoder: HeaderDecoder::new(),
            payload: Vec::new(),
            block: Vec::new(),
            is_too_large: false,
        }
    }

    /// The payload of the frame.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    pub(super) fn start_payload(&mut self) {
        self.payload.clear();
    }

    pub(super) fn push_payload(&mut self, bytes: &[u8]) {
        let free = BLOCK_BYTES_MAX - self.payload.len();
        self.is_too_large |= bytes.len() > free;
        self.payload.extend_from_slice(&bytes[..bytes.len().min(free)]);
    }

    /// Decodes the block that ends with a frame, if one does.
    pub(super) fn decode(
        &mut self,
        frame: &Http2FrameHeader,
        each: &mut impl FnMut(HeaderName, &[u8]),
    ) {
        let is_start = frame.kind != FrameKind::Continuation;
        if is_start {
            self.block.clear();
        }
        let fragment = fragment(frame, &self.payload).unwrap_or_default();
        self.is_too_large |= self.block.len() + fragment.len() > BLOCK_BYTES_MAX;
        if frame.flags & END_HEADERS == 0 {
            if !self.is_too_large {
                self.block.extend_from_slice(fragment);
            }
            return;
        }
        let is_whole = !self.is_too_large;
        let result = match self.block.is_empty() {
            _ if !is_whole => Ok(()),
            true => self.decoder.decode(fragment, each),
            false => {
                self.block.extend_from_slice(fragment);
                self.decoder.decode(&self.block, each)
            }
        };
        if !is_whole || result.is_err() {
            self.decoder.forget_table();
        }
        self.is_too_large = false;
        for buffer in [&mut self.payload, &mut self.block] {
            buffer.clear();
            buffer.shrink_to(RETAINED_BYTES_MAX);
        }
    }

    /// Bytes of a block were not captured, or the position was lost.
    pub(super) fn forget_table(&mut self) {
        self.decoder.forget_table();
        self.block.clear();
        self.payload.clear();
        self.is_too_large = false;
    }

    pub(super) fn memory(&self) -> usize {
        self.decoder.memory() + self.payload.capacity() + self.block.capacity()
    }
}

/// The part of a block in a payload, without padding, priority and promised stream.
fn fragment<'a>(frame: &Http2FrameHeader, payload: &'a [u8]) -> Option<&'a [u8]> {
    let is_continuation = frame.kind == FrameKind::Continuation;
    let (padding, mut rest) = match frame.flags & PADDED {
        0 => (0, payload),
        _ if is_continuation => (0, payload),
        _ => {
            let (padding, rest) = payload.split_first()?;
            (usize::from(*padding), rest)
        }
    };
    if frame.kind == FrameKind::Headers && frame.flags & PRIORITY != 0 {
        rest = rest.get(5..)?;
    }
    if frame.kind == FrameKind::PushPromise {
        rest = rest.get(4..)?;
    }
    rest.get(..rest.len().checked_sub(padding)?)
}
