//! Choices derived from bytes: a fuzzer's input or a seed.

/// Bytes that determine choices; after the last byte, every choice is the first option.
pub(crate) struct ByteChoices<'a> {
    bytes: &'a [u8],
}

impl<'a> ByteChoices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> ByteChoices<'a> {
        ByteChoices { bytes }
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    pub(crate) fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| (word << 8) | u64::from(self.byte()))
    }

    /// Number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        match n {
            0..=256 => usize::from(self.byte()) * n / 256,
            _ => (usize::from(self.byte()) * 256 + usize::from(self.byte())) * n / 65536,
        }
    }

    /// True once in `n`.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    pub(crate) fn pick_one<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}
