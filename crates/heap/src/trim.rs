//! The call to the C library: the only `unsafe` of the crate.
#![allow(unsafe_code, reason = "calls the C library; the call carries its argument")]

/// Whether the allocator has to be told: glibc's.
pub(crate) const IS_NEEDED: bool = cfg!(target_env = "gnu");

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
