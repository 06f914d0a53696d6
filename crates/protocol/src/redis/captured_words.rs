//! Short texts of a message: the words that say what a command is.

/// Number of words of a command that are captured: `XREADGROUP GROUP g c COUNT n NOACK BLOCK`.
const WORDS: usize = 9;

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

/// The first words of a message, each up to some bytes.
#[derive(Debug, Default)]
pub(super) struct CapturedWords {
    words: [CapturedText<40>; WORDS],
    /// Number of words that have started, of which the last may be incomplete.
    count: usize,
    /// Whether the last byte of an inline command was of a word.
    is_in_word: bool,
}

impl CapturedWords {
    pub(super) fn clear(&mut self) {
        (self.count, self.is_in_word) = (0, false);
    }

    /// Number of words, also of those that are not captured.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// A word; empty if there is none.
    pub(super) fn word(&self, index: usize) -> &[u8] {
        let word = self.words.get(index).filter(|_| index < self.count);
        word.map_or(&[], CapturedText::as_bytes)
    }

    /// Whether a word is this one, ignoring case.
    pub(super) fn is(&self, index: usize, expected: &str) -> bool {
        self.word(index).eq_ignore_ascii_case(expected.as_bytes())
    }

    /// Whether further bytes of the current word are ignored.
    pub(super) fn is_complete(&self) -> bool {
        self.current().is_none_or(CapturedText::is_full)
    }

    pub(super) fn start_word(&mut self) {
        if let Some(word) = self.words.get_mut(self.count) {
            *word = CapturedText::default();
        }
        self.count += 1;
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if let Some(word) = self.count.checked_sub(1).and_then(|last| self.words.get_mut(last)) {
            word.extend(bytes);
        }
    }

    /// Adds bytes of an inline command.
    pub(super) fn extend_inline(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let is_space = byte.is_ascii_whitespace();
            if !is_space && !self.is_in_word {
                self.start_word();
            }
            if !is_space {
                self.extend(&[*byte]);
            }
            self.is_in_word = !is_space;
        }
    }

    fn current(&self) -> Option<&CapturedText<40>> {
        self.words.get(self.count.checked_sub(1)?)
    }
}
