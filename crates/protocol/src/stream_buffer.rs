//! Bytes of one direction of a connection, of which a parser takes the front step by step.
//!
//! Steps are small: a parser that has less than [`STEP_BYTES_MAX`] bytes may ask for more, and gets
//! them joined. Bodies are passed over by their length and are never retained.

/// Maximum number of bytes that a step may require.
pub(crate) const STEP_BYTES_MAX: usize = 512;

/// Incomplete step, and the number of bytes to pass over.
#[derive(Default)]
pub(crate) struct StreamBuffer {
    incomplete: Vec<u8>,
    passed_over: u64,
}

impl StreamBuffer {
    /// Calls `step` with the bytes that are available, until it returns `None`: more are required.
    /// Otherwise it returns the number of bytes that it took, which may exceed what it was given;
    /// the excess is passed over as it arrives. `step` is also called without bytes.
    pub(crate) fn read(&mut self, mut bytes: &[u8], mut step: impl FnMut(&[u8]) -> Option<u64>) {
        loop {
            let over = self.passed_over.min(bytes.len() as u64);
            self.passed_over -= over;
            bytes = &bytes[over as usize..];
            if self.passed_over > 0 {
                return;
            }
            let before = self.incomplete.len();
            if before == 0 {
                let Some(taken) = step(bytes) else {
                    assert!(bytes.len() < STEP_BYTES_MAX, "{} bytes are too few", bytes.len());
                    self.incomplete.extend_from_slice(bytes);
                    return;
                };
                self.passed_over = taken;
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
                    self.passed_over = taken - before as u64;
                }
                Some(taken) => {
                    self.incomplete.truncate(before);
                    self.incomplete.drain(..taken as usize);
                }
            }
        }
    }

    /// Bytes to pass over.
    pub(crate) fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// Bytes of a step that is incomplete.
    pub(crate) fn incomplete(&self) -> usize {
        self.incomplete.len()
    }

    /// Forgets the position.
    pub(crate) fn clear(&mut self) {
        self.incomplete.clear();
        self.passed_over = 0;
    }

    pub(crate) fn memory(&self) -> usize {
        self.incomplete.capacity()
    }
}
