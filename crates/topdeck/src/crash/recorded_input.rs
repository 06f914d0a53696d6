//! Standard input of the handler, which is the core, and what was read of it.
//!
//! One thread reads the head of the core; another one then closes it, or hands it over to a former
//! handler, even if the first one does not return.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};

/// Standard input, shared by threads.
#[derive(Clone)]
pub(super) struct RecordedInput(Arc<Mutex<InputRecord>>);

struct InputRecord {
    is_open: bool,
    /// Whether a former handler needs what was read.
    is_kept: bool,
    read: Vec<u8>,
}

impl RecordedInput {
    pub(super) fn new(is_kept: bool) -> RecordedInput {
        RecordedInput(Arc::new(Mutex::new(InputRecord {
            is_open: true,
            is_kept,
            read: Vec::new(),
        })))
    }

    /// Whether a former handler needs all of it.
    pub(super) fn is_kept(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_kept
    }

    /// Closes it: the kernel stops writing the core, and the process ends. Waits for no reader.
    pub(super) fn close() -> Result<()> {
        let null = File::open("/dev/null").context("cannot open /dev/null")?;
        rustix::stdio::dup2_stdin(&null).context("cannot close standard input")
    }

    /// Writes the core to the former handler, and waits for it.
    pub(super) fn feed(&self, mut former: Child) -> Result<()> {
        let mut to = former.stdin.take().context("the former handler has no input")?;
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        record.is_open = false;
        let read = std::mem::take(&mut record.read);
        drop(record);
        // It may have read enough.
        let _ = to.write_all(&read).and_then(|()| io::copy(&mut io::stdin().lock(), &mut to));
        drop(to);
        // It may read /proc/PID until it ends: with `kernel.core_pipe_limit`, the process waits for
        // that.
        former.wait().context("cannot wait for the former handler")?;
        RecordedInput::close()
    }
}

impl Read for RecordedInput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !record.is_open {
            return Ok(0);
        }
        // Without the buffer of `std`, whose bytes a former handler would miss.
        let count = rustix::io::read(rustix::stdio::stdin(), &mut *bytes)?;
        if record.is_kept {
            record.read.extend_from_slice(&bytes[..count]);
        }
        Ok(count)
    }
}
