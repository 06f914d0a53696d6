//! CPU placement: the measured thread alone, observers elsewhere.

use rustix::system::uname;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPUs that this process may use.
pub(crate) struct Cpus {
    count: usize,
    /// CPU of the measured thread alone; `None` if there is only one, or the kernel did not
    /// reserve it.
    measured: Option<usize>,
}

impl Cpus {
    /// Excludes one CPU from this thread and from all threads and processes that it starts later.
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

    /// Moves this thread, and threads that it starts later, to the measured CPU.
    pub(crate) fn move_to_measured(&self) {
        let Some(measured) = self.measured else { return };
        let mut only = CpuSet::new();
        only.set(measured);
        // The CPU was in the set of this process before. On failure the measurement is only less
        // precise.
        let _ = sched_setaffinity(None, &only);
    }

    /// Description of the machine, one line.
    pub(crate) fn description(&self) -> String {
        let (name, release) = (uname().sysname().to_string_lossy().into_owned(), uname());
        let release = release.release().to_string_lossy();
        let (count, processors) =
            (self.count, if self.count == 1 { "processor" } else { "processors" });
        let where_ = match self.measured {
            Some(cpu) => format!("measured thread on CPU {cpu}, observers on the others"),
            None if self.count == 1 => "measured thread and observers share one CPU".to_owned(),
            None => "measured thread and observers share all CPUs".to_owned(),
        };
        format!("{name} {release}, {count} {processors}: {where_}.")
    }
}
