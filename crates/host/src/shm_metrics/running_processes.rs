//! Running processes with metrics in shared memory: their programs and generations. Stored series
//! have no PID; live views find it here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Labels of the stored series of a running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunningProcess {
    /// Name of its program: value of the label `process`.
    pub(crate) program: String,
    /// Value of the label `format`; empty for topdeck's own format.
    pub(crate) format: String,
    /// Value of the label `generation`; `None` if it holds none.
    pub(crate) generation: Option<String>,
}

/// Running processes by PID as seen from here. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningProcesses(Arc<Mutex<Arc<HashMap<u32, RunningProcess>>>>);

impl RunningProcesses {
    pub(crate) fn set(&self, processes: HashMap<u32, RunningProcess>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(processes);
    }

    pub(crate) fn get(&self) -> Arc<HashMap<u32, RunningProcess>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
