//! Bodies of messages up to the elements of their document.

use super::bson::{BsonCursor, BsonVisitor};
use super::message::{MORE_TO_COME, OP_MSG, OP_QUERY, OP_REPLY};

/// Longer names of collections are not allowed: 255 bytes.
const NAME_BYTES_MAX: usize = 256;

/// What is read next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MessagePart {
    /// Flags of OP_MSG.
    Flags,
    /// A section of OP_MSG.
    Section,
    /// Flags and collection of OP_QUERY.
    Query,
    /// Flags, cursor and number of documents of OP_REPLY.
    Reply,
    /// Length of the document.
    DocumentLength,
    Document,
    Nothing,
}

/// Position in the body of a message.
pub(super) struct BodyCursor<L> {
    part: MessagePart,
    document: BsonCursor<L>,
    root: L,
}

/// Receives what is before the document.
pub(super) trait BodyVisitor<L>: BsonVisitor<L> {
    /// `moreToCome` of OP_MSG.
    fn more_to_come(&mut self) {}

    /// Collection of OP_QUERY.
    fn collection(&mut self, _: &[u8]) {}

    /// OP_REPLY says that the query failed.
    fn query_failed(&mut self) {}
}

impl<L: Copy> BodyCursor<L> {
    pub(super) fn new(root: L) -> BodyCursor<L> {
        BodyCursor { part: MessagePart::Nothing, document: BsonCursor::new(), root }
    }

    pub(super) fn start(&mut self, opcode: i32) {
        self.part = match opcode {
            OP_MSG => MessagePart::Flags,
            OP_QUERY => MessagePart::Query,
            OP_REPLY => MessagePart::Reply,
            _ => MessagePart::Nothing,
        };
    }

    /// Reads as far as `bytes` allow. Returns the number of bytes that it took, perhaps more than
    /// it was given, or `None` if it requires more.
    pub(super) fn read(&mut self, bytes: &[u8], visitor: &mut impl BodyVisitor<L>) -> Option<u64> {
        match self.part {
            MessagePart::Nothing => Some(u64::MAX),
            MessagePart::Flags => {
                let flags = u32::from_le_bytes(*bytes.first_chunk()?);
                if flags & MORE_TO_COME != 0 {
                    visitor.more_to_come();
                }
                self.part = MessagePart::Section;
                Some(4)
            }
            MessagePart::Section => match bytes.first()? {
                0 => {
                    self.part = MessagePart::DocumentLength;
                    Some(1)
                }
                // A sequence of documents, which belong to the command of another section.
                1 => {
                    let size = i32::from_le_bytes(*bytes.get(1..)?.first_chunk()?);
                    Some(1 + u64::try_from(size).unwrap_or(0).max(4))
                }
                _ => {
                    self.part = MessagePart::Nothing;
                    Some(u64::MAX)
                }
            },
            MessagePart::Query => {
                let name = bytes.get(4..)?;
                let length = name.iter().take(NAME_BYTES_MAX).position(|byte| *byte == 0);
                let Some(length) = length else {
                    if name.len() < NAME_BYTES_MAX {
                        return None;
                    }
                    self.part = MessagePart::Nothing;
                    return Some(u64::MAX);
                };
                visitor.collection(&name[..length]);
                self.part = MessagePart::DocumentLength;
                // Numbers of documents to skip and to return.
                Some(4 + length as u64 + 1 + 8)
            }
            MessagePart::Reply => {
                let flags = u32::from_le_bytes(*bytes.first_chunk()?);
                if flags & 2 != 0 {
                    visitor.query_failed();
                }
                self.part = MessagePart::DocumentLength;
                Some(20)
            }
            MessagePart::DocumentLength => {
                self.document.start(self.root);
                self.part = MessagePart::Document;
                Some(4)
            }
            MessagePart::Document => self.document.read(bytes, visitor),
        }
    }

    /// Reads a body that is all there.
    pub(super) fn read_whole(&mut self, mut body: &[u8], visitor: &mut impl BodyVisitor<L>) {
        while let Some(taken) = self.read(body, visitor) {
            match usize::try_from(taken).ok().and_then(|taken| body.get(taken..)) {
                Some(rest) if !rest.is_empty() => body = rest,
                _ => return,
            }
        }
    }
}
