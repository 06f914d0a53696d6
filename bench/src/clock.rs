//! Clocks of the benchmarks: CPU time of this thread, which other load on the machine does not
//! extend.
//!
//! A reading is a system call of about 0.3 µs; measured intervals take milliseconds.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// CPU time of all threads of this process, including finished ones, user and system.
pub(crate) fn cpu_time_of_program() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// Wall time.
pub(crate) fn wall_time() -> Duration {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Time that this thread spent on the run queue; `None` if the system does not report it.
pub(crate) fn waited_for_processor() -> Option<Duration> {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = statistics.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time_and_sleep_does_not() {
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(20));
        assert!(cpu_time() - before < Duration::from_millis(10));
        while cpu_time() - before < Duration::from_millis(10) {}
    }
}
