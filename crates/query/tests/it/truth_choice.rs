//! Choices out of bytes: what a fuzzer changes, or a seed stands for.

/// Bytes that choices are made of; once they are used up, every choice is the first.
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

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        match n {
            0..=256 => usize::from(self.byte()) * n / 256,
            _ => (usize::from(self.byte()) * 256 + usize::from(self.byte())) * n / 65536,
        }
    }

    /// Once in so many.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    pub(crate) fn pick_one<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}
