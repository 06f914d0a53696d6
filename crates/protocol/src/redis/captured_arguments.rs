//! Short texts of a message: the arguments that say what a command is. The first one is its name.

/// Number of arguments of a command that are captured, the last one that is read being BLOCK of
/// `XREADGROUP GROUP g c COUNT n NOACK BLOCK`.
const ARGUMENTS: usize = 8;

/// The start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CapturedText<const SIZE: usize> {
    bytes: [u8; SIZE],
    length: u8,
}

impl<const SIZE: usize> Default for CapturedText<SIZE> {
    fn default() -> CapturedText<SIZE> {
        CapturedText { bytes: [0; SIZE], length: 0 }
    }
}

impl<const SIZE: usize> CapturedText<SIZE> {
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let start = usize::from(self.length);
        let length = bytes.len().min(SIZE - start);
        self.bytes[start..start + length].copy_from_slice(&bytes[..length]);
        self.length += length as u8;
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The text, which consists of ASCII characters.
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or("")
    }

    fn is_full(&self) -> bool {
        usize::from(self.length) == SIZE
    }
}

/// The first arguments of a message, each up to some bytes.
#[derive(Debug, Default)]
pub(super) struct CapturedArguments {
    arguments: [CapturedText<40>; ARGUMENTS],
    /// Number of arguments that have started, of which the last may be incomplete.
    count: usize,
    /// Whether the last byte of an inline command was of an argument.
    is_in_argument: bool,
}

impl CapturedArguments {
    pub(super) fn clear(&mut self) {
        (self.count, self.is_in_argument) = (0, false);
    }

    /// Number of arguments, also of those that are not captured.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// An argument; empty if there is none.
    pub(super) fn argument(&self, index: usize) -> &[u8] {
        let argument = self.arguments.get(index).filter(|_| index < self.count);
        argument.map_or(&[], CapturedText::as_bytes)
    }

    /// Whether an argument is this one, ignoring case.
    pub(super) fn is(&self, index: usize, expected: &str) -> bool {
        self.argument(index).eq_ignore_ascii_case(expected.as_bytes())
    }

    /// Whether further bytes of the current argument are ignored: its capture is full, or there is
    /// none.
    pub(super) fn is_full(&self) -> bool {
        self.current().is_none_or(CapturedText::is_full)
    }

    pub(super) fn start_argument(&mut self) {
        if let Some(argument) = self.arguments.get_mut(self.count) {
            *argument = CapturedText::default();
        }
        self.count += 1;
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if let Some(argument) =
            self.count.checked_sub(1).and_then(|last| self.arguments.get_mut(last))
        {
            argument.extend(bytes);
        }
    }

    /// Adds bytes of an inline command.
    pub(super) fn extend_inline(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let is_space = byte.is_ascii_whitespace();
            if !is_space && !self.is_in_argument {
                self.start_argument();
            }
            if !is_space {
                self.extend(&[*byte]);
            }
            self.is_in_argument = !is_space;
        }
    }

    fn current(&self) -> Option<&CapturedText<40>> {
        self.arguments.get(self.count.checked_sub(1)?)
    }
}
