//! Running programs with metrics in shared memory: which process holds which generation. Stored
//! series have no PID; live views find it here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A running program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveProgram {
    /// Value of the label `process`.
    pub(crate) process: String,
    /// Value of the label `format`; empty for topdeck's own format.
    pub(crate) format: String,
    /// Value of the label `generation`; `None` if it holds none.
    pub(crate) generation: Option<String>,
}

/// Running programs by PID as seen from here. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LivePrograms(Arc<Mutex<Arc<HashMap<u32, LiveProgram>>>>);

impl LivePrograms {
    pub(crate) fn set(&self, programs: HashMap<u32, LiveProgram>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(programs);
    }

    pub(crate) fn get(&self) -> Arc<HashMap<u32, LiveProgram>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
