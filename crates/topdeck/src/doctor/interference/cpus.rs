//! CPU placement: the measured thread alone, observers elsewhere.

use rustix::system::uname;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that this process may use.
pub(crate) struct Cpus {
    count: usize,
    /// The one that is measured on, where there are others.
    measured: Option<usize>,
}

impl Cpus {
    /// Keeps one processor free of this thread, and of all threads and processes that it will
    /// start.
    pub(crate) fn reserve_one() -> Cpus {
        let Ok(mut allowed) = sched_getaffinity(None) else {
            return Cpus { count: 1, measured: None };
        };
        let count = allowed.count() as usize;
        let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu));
        let Some(measured) = last.filter(|_| count > 1) else {
            return Cpus { count, measured: None };
        };
        allowed.unset(measured);
        let parted = sched_setaffinity(None, &allowed).is_ok();
        Cpus { count, measured: parted.then_some(measured) }
    }

    /// Moves this thread, and what it will start, to the processor that is measured on.
    pub(crate) fn move_to_measured(&self) {
        let Some(measured) = self.measured else { return };
        let mut only = CpuSet::new();
        only.set(measured);
        // It was in the set of this process a moment ago; elsewhere it is measured less well, and
        // that is all.
        let _ = sched_setaffinity(None, &only);
    }

    /// The machine, in a line.
    pub(crate) fn description(&self) -> String {
        let (name, release) = (uname().sysname().to_string_lossy().into_owned(), uname());
        let release = release.release().to_string_lossy();
        let (count, processors) =
            (self.count, if self.count == 1 { "processor" } else { "processors" });
        let where_ = match self.measured {
            Some(cpu) => format!("what is measured runs on processor {cpu}, the readers on others"),
            None => "what is measured and the readers take turns".to_owned(),
        };
        format!("{name} {release}, {count} {processors}: {where_}.")
    }
}
