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

/// Configures the allocator. The environment variables `MALLOC_ARENA_MAX` and
/// `MALLOC_MMAP_THRESHOLD_` take precedence.
pub(crate) fn tune() {
    #[cfg(target_env = "gnu")]
    for (variable, parameter, value) in [
        ("MALLOC_ARENA_MAX", libc::M_ARENA_MAX, ARENAS_MAX),
        ("MALLOC_MMAP_THRESHOLD_", libc::M_MMAP_THRESHOLD, MAPPED_BYTES),
    ] {
        if std::env::var_os(variable).is_none() {
            // SAFETY: mallopt(3) takes two integers; both parameters may be set at any time and
            // apply to later allocations. It returns 0 for an unknown parameter and changes
            // nothing.
            let _ = unsafe { libc::mallopt(parameter, value) };
        }
    }
    // mimalloc requests huge pages, which the kernel clears whole: queries took 12 % more CPU time,
    // and an ingesting server had 122 MB resident instead of 55 MB.
    #[cfg(target_env = "musl")]
    // SAFETY: prctl(2) with this option takes integers. Old kernels do not know it and change
    // nothing.
    unsafe {
        let _ = libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
}

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
