//! CPU counter and its capabilities. The only `unsafe` of the crate.
#![allow(
    unsafe_code,
    reason = "instructions of the processor, adjtimex(2) and pthread_atfork(3) have no safe form; \
              each use carries its argument"
)]

/// Instructions that read the counter.
#[cfg(target_arch = "x86_64")]
mod read {
    use std::arch::x86_64::{__cpuid, _mm_lfence, _rdtsc};

    /// The counter, read after all earlier instructions. The read may be late, but never early.
    #[inline(always)]
    pub(crate) fn ordered() -> u64 {
        // SAFETY: every x86-64 CPU has both. Where reading is forbidden (`PR_SET_TSC`), no segment
        // is published.
        unsafe {
            _mm_lfence();
            _rdtsc()
        }
    }

    /// The counter, up to tens of nanoseconds before or after the neighbouring instructions.
    #[inline(always)]
    pub(crate) fn relaxed() -> u64 {
        // SAFETY: as above.
        unsafe { _rdtsc() }
    }

    /// Whether the counter has one rate in all CPU states (AMD APM 3, CPUID 8000_0007h EDX bit 8;
    /// Intel SDM 3, 19.17.4).
    pub(crate) fn is_invariant() -> bool {
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod read {
    pub(crate) fn ordered() -> u64 {
        0
    }

    pub(crate) fn relaxed() -> u64 {
        0
    }

    pub(crate) fn is_invariant() -> bool {
        false
    }
}

pub(crate) use read::{ordered, relaxed};

use std::fs;

/// Why the counter is unusable here, or `None`.
pub(crate) fn unusable_reason() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some(format!("no CPU counter support on {}", std::env::consts::ARCH));
    }
    if !is_allowed() {
        return Some("this process may not read the counter (PR_SET_TSC)".to_owned());
    }
    if !read::is_invariant() {
        return Some("the CPU counter is not invariant: its rate varies".to_owned());
    }
    // The kernel compares the counters of all CPUs and watches them.
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match fs::read_to_string(path) {
        Ok(source) if source.trim() == "tsc" => None,
        Ok(source) => {
            Some(format!("the kernel clocksource is {}, not the CPU counter", source.trim()))
        }
        Err(error) => Some(format!("cannot read the kernel clocksource: {path}: {error}")),
    }
}

/// Whether this thread may read the counter; false if that is unknown.
fn is_allowed() -> bool {
    use rustix::process::{TimeStampCounterReadability, time_stamp_counter_readability};
    time_stamp_counter_readability() == Ok(TimeStampCounterReadability::Readable)
}

/// Whether NTP or PTP disciplines the system clock, so that its rate may change at any time.
pub(crate) fn is_disciplined() -> bool {
    // SAFETY: an all-zero `timex` requests and changes nothing; the call fills it.
    let status = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        match libc::adjtimex(&mut timex) {
            -1 => return true,
            _ => timex.status,
        }
    };
    status & libc::STA_UNSYNC == 0 || status & (libc::STA_PLL | libc::STA_FLL) != 0
}

/// Registers a handler that runs first in each forked process.
pub(crate) fn register_fork_handler(child: extern "C" fn()) {
    // SAFETY: the handler only stores atomics, which is allowed there.
    unsafe {
        libc::pthread_atfork(None, None, Some(child));
    }
}
