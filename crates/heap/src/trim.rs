//! The call to the C library: the only `unsafe` of the crate.
#![allow(unsafe_code, reason = "calls the C library; the call carries its argument")]

/// Whether the allocator has to be told: glibc's.
pub(crate) const IS_NEEDED: bool = cfg!(target_env = "gnu");

/// Blocks from this size on are mapped by themselves, and unmapped when they are freed. By itself
/// glibc raises the size to that of the largest block freed so far, up to 32 MiB, and then keeps
/// such blocks in its arenas: 150 answers of 9 MiB that nobody read left 115 MiB more resident a
/// minute later, with a peak of 739 MiB above the idle process. With both settings it was 26 and
/// 62 MiB, and 490 and 630 MiB, in two runs.
const MAPPED_BYTES: libc::c_int = 256 << 10;
/// Arenas, which threads share: by itself glibc makes eight for each processor.
const ARENAS_MAX: libc::c_int = 4;

/// Has the allocator keep less. What the environment says (`MALLOC_ARENA_MAX`,
/// `MALLOC_MMAP_THRESHOLD_`) stays.
pub(crate) fn tune() {
    #[cfg(target_env = "gnu")]
    for (variable, parameter, value) in [
        ("MALLOC_ARENA_MAX", libc::M_ARENA_MAX, ARENAS_MAX),
        ("MALLOC_MMAP_THRESHOLD_", libc::M_MMAP_THRESHOLD, MAPPED_BYTES),
    ] {
        if std::env::var_os(variable).is_none() {
            // SAFETY: mallopt(3) takes two numbers; both parameters may be set at any time, and
            // concern blocks that are allocated from then on. It says 0 where it knows no such
            // parameter, which leaves everything as it was.
            let _ = unsafe { libc::mallopt(parameter, value) };
        }
    }
}

/// Gives all free pages of all arenas back to the system.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes no pointer, may be called by any thread at any time (MT-Safe),
    // and releases only pages that no block lies in; it changes no block that is in use. Where
    // another allocator takes the place of glibc's (LD_PRELOAD), it finds nothing to release.
    unsafe {
        // Whether something was released is seen in the resident memory.
        let _ = libc::malloc_trim(0);
    }
}
