//! Calls to the C library that configure its allocator and return its memory.
#![allow(unsafe_code, reason = "calls the C library; each call carries its argument")]

/// Whether the allocator needs trimming: glibc's does.
pub(crate) const IS_NEEDED: bool = cfg!(target_env = "gnu");

/// Blocks of at least this size are mapped individually, and unmapped when they are freed. By
/// default glibc raises this size to that of the largest block freed so far, up to 32 MiB, and
/// keeps such blocks in its arenas: 150 unread responses of 9 MiB left 115 MiB resident a minute
/// later, with a peak of 739 MiB above the idle process. With both settings it was 26 and 62 MiB,
/// and 490 and 630 MiB, in two runs.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 256 << 10;
/// Maximum number of arenas; glibc's default is eight per CPU.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: libc::c_int = 4;

/// Free memory at the end of an arena that is kept. By default, with the size above, glibc returns
/// all but 128 KiB at once: a query that needs 15 MB for the histograms of its steps had every page
/// cleared again, and took 33 ms of CPU time instead of 26. Idle processes are trimmed in any case.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 16 << 20;

/// Configures the allocator. The environment variables `MALLOC_ARENA_MAX`,
/// `MALLOC_MMAP_THRESHOLD_` and `MALLOC_TRIM_THRESHOLD_` take precedence.
pub(crate) fn tune() {
    #[cfg(target_env = "gnu")]
    for (variable, parameter, value) in [
        ("MALLOC_ARENA_MAX", libc::M_ARENA_MAX, ARENAS_MAX),
        ("MALLOC_MMAP_THRESHOLD_", libc::M_MMAP_THRESHOLD, MAPPED_BYTES),
        ("MALLOC_TRIM_THRESHOLD_", libc::M_TRIM_THRESHOLD, KEPT_BYTES),
    ] {
        if std::env::var_os(variable).is_none() {
            // SAFETY: mallopt(3) takes two integers; both parameters may be set at any time and
            // apply to later allocations. It returns 0 for an unknown parameter and changes
            // nothing.
            let _ = unsafe { libc::mallopt(parameter, value) };
        }
    }
    // SAFETY: prctl(2) with this option takes integers; a kernel that does not know it changes
    // nothing. The option of mimalloc is an integer that it reads whenever it frees pages; no
    // other thread runs yet.
    #[cfg(target_env = "musl")]
    unsafe {
        // mimalloc asks for huge pages, which the kernel clears as a whole: queries took 12 % more
        // CPU time, and after ingest 122 MB were resident instead of 55 MB.
        let _ = libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS);
    }
}

/// `mi_option_purge_delay` of mimalloc.h. The variable `MIMALLOC_PURGE_DELAY` takes precedence.
#[cfg(target_env = "musl")]
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// Time until free pages are returned to the system, in milliseconds. With the default of a second
/// 150 unread responses of 9 MiB had a peak of 543 MiB above the idle process, now of 479 MiB; CPU
/// times of queries differ by less than their spread. At 10 ms queries took 8 % more.
#[cfg(target_env = "musl")]
const PURGE_DELAY_MS: libc::c_long = 100;

/// Returns all free pages of all arenas to the system.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes no pointer, may be called by any thread at any time (MT-Safe),
    // and releases only pages without allocated blocks. With another allocator (LD_PRELOAD) it
    // finds nothing to release.
    unsafe {
        // The resident memory shows whether pages were released.
        let _ = libc::malloc_trim(0);
    }
}
