//! Bytes of one direction of a connection, of which a parser takes the front step by step.
//!
//! Steps are small: a parser that has less than [`STEP_BYTES_MAX`] bytes may ask for more, and gets
//! them joined. Bodies are skipped by their length and are never retained.

/// Maximum number of bytes that a step may require.
pub(crate) const STEP_BYTES_MAX: usize = 512;

/// Incomplete step, and the number of bytes to skip.
#[derive(Default)]
pub(crate) struct StreamBuffer {
    incomplete: Vec<u8>,
    to_skip: u64,
}

impl StreamBuffer {
    /// Calls `step` with the bytes that are available, until it returns `None`: more are required.
    /// Otherwise it returns the number of bytes that it took, which may exceed what it was given;
    /// the excess is skipped as it arrives. `step` is also called without bytes.
    pub(crate) fn read(&mut self, mut bytes: &[u8], mut step: impl FnMut(&[u8]) -> Option<u64>) {
        loop {
            let skipped = self.to_skip.min(bytes.len() as u64);
            self.to_skip -= skipped;
            bytes = &bytes[skipped as usize..];
            if self.to_skip > 0 {
                return;
            }
            let before = self.incomplete.len();
            if before == 0 {
                let Some(taken) = step(bytes) else {
                    assert!(bytes.len() < STEP_BYTES_MAX, "{} bytes are too few", bytes.len());
                    self.incomplete.extend_from_slice(bytes);
                    return;
                };
                self.to_skip = taken;
                continue;
            }
            let added = bytes.len().min(STEP_BYTES_MAX - before);
            self.incomplete.extend_from_slice(&bytes[..added]);
            match step(&self.incomplete) {
                None => {
                    assert!(added == bytes.len(), "{STEP_BYTES_MAX} bytes are too few");
                    return;
                }
                // The step took all that was retained: the rest is read from `bytes` itself.
                Some(taken) if taken >= before as u64 => {
                    self.incomplete.clear();
                    self.to_skip = taken - before as u64;
                }
                Some(taken) => {
                    self.incomplete.truncate(before);
                    self.incomplete.drain(..taken as usize);
                }
            }
        }
    }

    /// Number of bytes that are skipped as they arrive.
    pub(crate) fn to_skip(&self) -> u64 {
        self.to_skip
    }

    /// Bytes of a step that is incomplete.
    pub(crate) fn incomplete(&self) -> usize {
        self.incomplete.len()
    }

    /// Discards the incomplete step and what is to be skipped: the next byte begins a step.
    pub(crate) fn clear(&mut self) {
        self.incomplete.clear();
        self.to_skip = 0;
    }

    pub(crate) fn memory(&self) -> usize {
        self.incomplete.capacity()
    }
}
