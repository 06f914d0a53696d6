//! Shared memory regions; the only file of the crate with `unsafe`.
//!
//! A region is accessed as atomics and never as bytes: another process may write any of it at any
//! time, which a `&[u8]` would rule out. Its first [`FUTEX_BYTES`] are 32-bit futex words, the rest
//! 64-bit words, so that no word is ever accessed in two widths. The byte order is the machine's;
//! stored data are little-endian because topdeck runs on little-endian machines only (`os.rs`
//! refuses to compile elsewhere).
#![allow(unsafe_code, reason = "maps files; each use carries its argument")]

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::thread::futex;

/// Size of the futex words at the start of a region: one page.
pub const FUTEX_BYTES: usize = 4096;

/// Shared memory region of 64-bit words, with a page of 32-bit futex words in front.
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    owner: RegionOwner,
}

/// Owner of a region's memory.
enum RegionOwner {
    /// A file mapping, unmapped by `drop`.
    Mapping,
    /// An anonymous mapping, unmapped by `drop`.
    Anonymous,
    /// Memory of this process. For a simulated file, which several regions may share, `file` is a
    /// token: it is dropped with the region, so that the file knows whether it is mapped.
    Heap { _words: Arc<[AtomicU64]>, file: Option<Arc<()>> },
}

// SAFETY: all access goes through atomics, which any thread may use; the memory lives as long as
// `self`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps the first `len` bytes of a file, shared. Accesses past the file's end would kill the
    /// process (SIGBUS), so a shorter file is refused, and [`crate::File::map`] forbids truncating
    /// it.
    pub(crate) fn map(file: &File, len: u64) -> io::Result<Region> {
        let len = Region::check_len(len, file.metadata()?.len())?;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            mmap(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Region { base, len, owner: RegionOwner::Mapping })
    }

    /// Length of a region over the first `len` bytes of a file of `file_len` bytes, or the reason
    /// why it is invalid.
    pub fn check_len(len: u64, file_len: u64) -> io::Result<usize> {
        let size = checked_len(len)?;
        if file_len < len {
            let cause = "the file is shorter than its mapping";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, cause));
        }
        Ok(size)
    }

    /// Private zeroed memory.
    pub fn heap(len: u64) -> io::Result<Region> {
        let len = checked_len(len)?;
        let words: Arc<[AtomicU64]> = (0..len / 8).map(|_| AtomicU64::new(0)).collect();
        let base = NonNull::from(&words[..]).cast();
        Ok(Region { base, len, owner: RegionOwner::Heap { _words: words, file: None } })
    }

    /// Private zeroed memory as a separate mapping whose pages, of the smallest size, are allocated
    /// on first access. For measuring the cost of mappings; an allocator would reuse memory.
    pub fn anonymous(len: u64) -> io::Result<Region> {
        let len = checked_len(len)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, MapFlags::PRIVATE)? };
        // SAFETY: the range is the mapping just made, and the size of its pages changes no
        // contents. A kernel without huge pages refuses, and has none to be kept from.
        let _ = unsafe { madvise(base, len, Advice::LinuxNoHugepage) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Region { base, len, owner: RegionOwner::Anonymous })
    }

    /// The first `len` bytes of memory that stands for a simulated file. Other owners of the words
    /// must not access the first [`FUTEX_BYTES`].
    pub fn from_words(words: Arc<[AtomicU64]>, len: usize, token: Arc<()>) -> Region {
        let fits = len.is_multiple_of(8) && len > FUTEX_BYTES && len <= words.len() * 8;
        assert!(fits, "BUG: a region of {len} bytes over {} words", words.len());
        let base = NonNull::from(&words[..]).cast();
        Region { base, len, owner: RegionOwner::Heap { _words: words, file: Some(token) } }
    }

    /// Whether the contents outlive the process.
    pub fn persists_after_exit(&self) -> bool {
        !matches!(self.owner, RegionOwner::Anonymous | RegionOwner::Heap { file: None, .. })
    }

    /// Futex word, `index` below 64; each has its own cache line.
    pub fn futex_word(&self, index: usize) -> &AtomicU32 {
        assert!(index < FUTEX_BYTES / 64, "BUG: there is no futex word {index}");
        // SAFETY: the byte index * 64 lies in the first FUTEX_BYTES, which `checked_len`,
        // `check_len` and `from_words` checked to be there; it is aligned as the base is (to 8 at
        // least), and these bytes are used as u32 only. The memory lives as long as the reference,
        // which borrows `self`.
        unsafe { AtomicU32::from_ptr(self.base.add(index * 64).cast().as_ptr()) }
    }

    /// Prefetches a word for writing, so that a later write does not wait for the cache line. A
    /// hint: no effect where the instruction does not exist.
    #[inline]
    pub fn prefetch_for_write(&self, index: usize) {
        let word: &AtomicU64 = &self[index];
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch is a hint: it reads and writes nothing and cannot fault, whatever the
        // address, and this one is that of a word of ours.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_ET0>(ptr::from_ref(word).cast());
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = word;
    }

    /// Waits until the futex word differs from `expected`, [`Region::wake`] is called, or the
    /// timeout elapses; may return spuriously. Returns whether the timeout elapsed.
    pub fn wait(&self, index: usize, expected: u32, timeout: Option<Duration>) -> bool {
        let timeout = timeout.map(|d: Duration| futex::Timespec {
            tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: d.subsec_nanos().into(),
        });
        // Not private: the word may be in memory shared with other processes.
        let waited =
            futex::wait(self.futex_word(index), futex::Flags::empty(), expected, timeout.as_ref());
        waited == Err(rustix::io::Errno::TIMEDOUT)
    }

    /// Wakes at most `count` waiters of the word.
    pub fn wake(&self, index: usize, count: u32) {
        // The kernel takes a signed count, and wakes one waiter for a negative one.
        let count = count.min(i32::MAX as u32);
        // It can only fail for an invalid address, and this one is valid.
        let _ = futex::wake(self.futex_word(index), futex::Flags::empty(), count);
    }
}

impl Deref for Region {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        let count = (self.len - FUTEX_BYTES) / 8;
        // SAFETY: `count` words from FUTEX_BYTES on end at `len` at the latest, and `checked_len`,
        // `check_len` and `from_words` checked that `len` is larger. FUTEX_BYTES is a multiple of 8
        // and the base aligned to 8. Atomics may be shared with whoever else maps the memory. It
        // lives as long as the reference, which borrows `self`.
        unsafe { std::slice::from_raw_parts(self.base.add(FUTEX_BYTES).cast().as_ptr(), count) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let RegionOwner::Mapping | RegionOwner::Anonymous = self.owner {
            // SAFETY: base and len are those of `mmap` or `mmap_anonymous`, and all references
            // borrowed `self`, which is ending.
            let undone = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
            debug_assert!(undone.is_ok(), "BUG: munmap: {undone:?}");
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.owner {
            RegionOwner::Mapping => "mapped",
            RegionOwner::Anonymous => "anonymous",
            RegionOwner::Heap { file: None, .. } => "heap",
            RegionOwner::Heap { file: Some(_), .. } => "simulated",
        };
        f.debug_struct("Region").field("kind", &kind).field("len", &self.len).finish()
    }
}

/// The length as `usize`, if it covers the futex words and at least one other. No memory is longer
/// than `isize::MAX`.
fn checked_len(len: u64) -> io::Result<usize> {
    let size = isize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)? as usize;
    if size.is_multiple_of(8) && size > FUTEX_BYTES {
        return Ok(size);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid region length {len}")))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn miri_words_and_futex_words_do_not_overlap() {
        let region = Region::heap(FUTEX_BYTES as u64 + 16).unwrap();
        assert_eq!(region.len(), 2);
        region.futex_word(63).store(7, Ordering::Relaxed);
        region[0].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(region.futex_word(63).load(Ordering::Relaxed), 7);
        assert_eq!(region[0].load(Ordering::Relaxed), u64::MAX);
    }

    #[test]
    fn anonymous_memory_is_zero_writable_and_of_this_process() {
        let region = Region::anonymous(1 << 20).unwrap();
        assert_eq!(region.len(), ((1 << 20) - FUTEX_BYTES) / 8);
        assert!(!region.persists_after_exit());
        let last = region.len() - 1;
        assert_eq!(region[last].swap(7, Ordering::Relaxed), 0);
        assert_eq!(region[last].load(Ordering::Relaxed), 7);
        region.futex_word(0).store(1, Ordering::Relaxed);
        assert!(Region::anonymous(1 << 62).is_err(), "no machine has that much");
    }

    #[test]
    fn miri_regions_over_the_same_memory_share_it() {
        let words: Arc<[AtomicU64]> = (0..1024).map(|_| AtomicU64::new(0)).collect();
        let a = Region::from_words(Arc::clone(&words), 1024 * 8, Arc::default());
        let b = Region::from_words(words, 1000 * 8, Arc::default());
        assert_eq!((a.len(), b.len()), (512, 488));
        assert!(a.persists_after_exit());
        a[3].store(9, Ordering::Release);
        drop(a);
        assert_eq!(b[3].load(Ordering::Acquire), 9);
    }

    #[test]
    fn invalid_lengths_are_rejected() {
        for len in [0, 8, FUTEX_BYTES as u64, FUTEX_BYTES as u64 + 4] {
            assert!(Region::heap(len).is_err(), "{len}");
            assert!(Region::anonymous(len).is_err(), "{len}");
        }
    }

    #[test]
    fn all_waiters_are_woken() {
        let region = Region::heap(FUTEX_BYTES as u64 + 8).unwrap();
        let minute = Some(Duration::from_secs(60));
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let threads = [0; 3].map(|_| {
                let (tell, region) = (tell.clone(), &region);
                scope.spawn(move || {
                    tell.send(rustix::thread::gettid()).unwrap();
                    region.wait(0, 0, minute)
                })
            });
            for _ in &threads {
                let stat =
                    format!("/proc/self/task/{}/stat", told.recv().unwrap().as_raw_nonzero());
                while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            region.futex_word(0).store(1, Ordering::Relaxed);
            region.wake(0, u32::MAX);
            assert!(threads.into_iter().all(|thread| !thread.join().unwrap()));
        });
    }

    #[test]
    fn a_wait_ends_with_the_time_or_with_a_change() {
        let region = Region::heap(FUTEX_BYTES as u64 + 8).unwrap();
        assert!(region.wait(0, 0, Some(Duration::from_millis(1))));
        assert!(!region.wait(0, 1, None));
    }
}
