//! How certain a reader is of its position in the stream of a direction.

/// Position of a reader whose messages have a length and an id, but no mark of their start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessagePosition {
    /// A message starts after the one before it.
    Known,
    /// A packet starts as a message does, perhaps by chance. The message is not measured.
    Found,
    /// Inside or after the first message that was found; the next header must be plausible too.
    Unconfirmed,
    /// Bytes are not read until a packet starts as a message does.
    Lost,
}

impl MessagePosition {
    /// Position at the start of capture.
    pub(crate) fn at_start(has_first_byte: bool) -> MessagePosition {
        if has_first_byte { MessagePosition::Known } else { MessagePosition::Lost }
    }

    /// Whether a message starts at a packet, and whether that is certain: the packet consists of
    /// whole messages, or of at least one and the start of another. `message_bytes` returns the
    /// size of the message at the start of bytes, if there is one.
    pub(crate) fn at_packet(
        packet: &[u8],
        message_bytes: impl Fn(&[u8]) -> Option<u64>,
    ) -> MessagePosition {
        let mut rest = packet;
        let mut is_synchronised = false;
        while let Some(bytes) = message_bytes(rest) {
            let next = usize::try_from(bytes).ok().and_then(|bytes| rest.get(bytes..));
            match next {
                Some([]) => return MessagePosition::Known,
                Some(next) => (rest, is_synchronised) = (next, true),
                None if is_synchronised => return MessagePosition::Known,
                None => return MessagePosition::Found,
            }
        }
        MessagePosition::Lost
    }

    /// Position after a plausible start of a message.
    pub(crate) fn after_message_start(self) -> MessagePosition {
        match self {
            MessagePosition::Found => MessagePosition::Unconfirmed,
            _ => MessagePosition::Known,
        }
    }
}
