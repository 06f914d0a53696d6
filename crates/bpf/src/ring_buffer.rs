//! A ring buffer between BPF programs and this process.
//!
//! Programs reserve a record, fill it and submit it; this process reads records in the order in
//! which they were reserved. The kernel has two counters of bytes, each in a page of its own: that
//! of the reader, which this process writes, and that of the programs. The data is mapped twice in
//! a row, so no record is divided. If there is no space, a reservation fails, and the program
//! counts the loss. Source: kernel, kernel/bpf/ringbuf.c, Documentation/bpf/ringbuf.rst.
#![allow(unsafe_code, reason = "a shared mapping has no safe form; each use carries its argument")]

use std::io;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use crate::load_error::load_error;
use crate::map::BpfMap;
use crate::ring_record::{HEADER_BYTES, RingRecord};

/// A ring buffer and its reader.
#[derive(Debug)]
pub struct RingBuffer {
    map: BpfMap,
    /// Size of the data, a power of two.
    bytes: usize,
    /// Page with the counter of the reader.
    reader: NonNull<u8>,
    /// Page with the counter of the programs, and the data twice.
    records: NonNull<u8>,
}

// SAFETY: the mappings belong to this value alone, and nothing in them is bound to a thread.
unsafe impl Send for RingBuffer {}

impl RingBuffer {
    /// Creates a ring buffer of `bytes`, a power of two and a multiple of the page size.
    pub fn create(name: &str, bytes: u32) -> Result<RingBuffer, String> {
        let map = BpfMap::ring(name, bytes)?;
        let failure = |error: io::Error| load_error("map a BPF ring buffer", &error);
        let page = page_size();
        let bytes = bytes as usize;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel does not affect existing memory.
        let reader =
            unsafe { mmap(ptr::null_mut(), page, protection, MapFlags::SHARED, map.as_fd(), 0) };
        let reader = reader.map_err(|error| failure(error.into()))?;
        let size = page + 2 * bytes;
        // SAFETY: as above.
        let records = unsafe {
            let flags = MapFlags::SHARED;
            mmap(ptr::null_mut(), size, ProtFlags::READ, flags, map.as_fd(), page as u64)
        };
        let records = match records {
            Ok(records) => records,
            Err(error) => {
                // SAFETY: the mapping was just created, and nothing refers to it.
                let _ = unsafe { munmap(reader, page) };
                return Err(failure(error.into()));
            }
        };
        let address = |of: *mut std::ffi::c_void| {
            NonNull::new(of.cast()).expect("BUG: the kernel mapped the null page")
        };
        Ok(RingBuffer { map, bytes, reader: address(reader), records: address(records) })
    }

    /// The number by which programs name the ring buffer when they are loaded.
    pub fn descriptor(&self) -> i32 {
        self.map.descriptor()
    }

    /// Calls `each` with the records that are complete, up to the first that is being written.
    /// Returns their number. Records that are submitted meanwhile may be left for the next call.
    pub fn read(&mut self, each: &mut dyn FnMut(&[u8])) -> usize {
        let end = self.written().load(Ordering::Relaxed);
        // Pairs with the release of the programs' counter by the kernel.
        fence(Ordering::Acquire);
        let mut count = 0;
        // Only this process writes its counter.
        let mut position = self.consumed().load(Ordering::Relaxed);
        while position < end {
            let Some(record) = RingRecord::decode(self.length_field(position)) else { break };
            if record.stride > self.bytes {
                break;
            }
            let next = position + record.stride as u64;
            let current = ReadRecord { ring: self, next };
            if record.is_valid {
                count += 1;
                each(current.ring.content(position, record.length));
            }
            position = next;
        }
        count
    }

    fn consumed(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped readable and writable and aligned, and lives as long as
        // `self`. The kernel only loads this counter, as a whole.
        unsafe { AtomicU64::from_ptr(self.reader.cast().as_ptr()) }
    }

    fn written(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped readable and aligned, and lives as long as `self`. The kernel
        // stores the counter as a whole. This process only loads it, with relaxed ordering, which
        // read-only memory permits for words (std::sync::atomic, "Atomic accesses to read-only
        // memory"); a fence follows where the order matters.
        unsafe { AtomicU64::from_ptr(self.records.cast().as_ptr()) }
    }

    /// Start of the record at this position.
    fn record(&self, position: u64) -> NonNull<u8> {
        let offset = (position as usize) & (self.bytes - 1);
        // SAFETY: the mapping has a page and twice `bytes`, and the offset is below `bytes`.
        unsafe { self.records.add(page_size() + offset) }
    }

    fn length_field(&self, position: u64) -> u32 {
        // SAFETY: the header of a record is inside the mapping, as its start is below `bytes` and
        // the data is mapped twice; records start at multiples of 8. It is only loaded, as a word
        // with relaxed ordering, which read-only memory permits.
        let field = unsafe { AtomicU32::from_ptr(self.record(position).cast().as_ptr()) };
        let length = field.load(Ordering::Relaxed);
        // Pairs with the exchange of the length when a program submits the record.
        fence(Ordering::Acquire);
        length
    }

    /// Content of a complete record.
    fn content(&self, position: u64, length: usize) -> &[u8] {
        assert!(length + HEADER_BYTES <= self.bytes, "BUG: a record of {length} bytes");
        let start = self.record(position);
        // SAFETY: the record with its header is at most as long as the data and starts in its first
        // copy, so it ends inside of the second one. The kernel does not write to a record that is
        // complete (an acquire fence follows the load in `length_field`) until the reader's counter
        // is behind it, which `ReadRecord` stores after the last use of the slice.
        unsafe { slice::from_raw_parts(start.add(HEADER_BYTES).as_ptr(), length) }
    }
}

/// The record that is read. Its space is given back on drop, also by a panic of the reader:
/// otherwise the reader would get the same record again and again.
struct ReadRecord<'a> {
    ring: &'a RingBuffer,
    /// Position behind it.
    next: u64,
}

impl Drop for ReadRecord<'_> {
    fn drop(&mut self) {
        // Reads of the record are complete before the kernel uses its space again.
        self.ring.consumed().store(self.next, Ordering::Release);
    }
}

impl Drop for RingBuffer {
    fn drop(&mut self) {
        // SAFETY: `self` owns both mappings, created with these sizes, and nothing borrows from
        // them any more. munmap cannot fail for such mappings.
        unsafe {
            let _ = munmap(self.reader.as_ptr().cast(), page_size());
            let _ = munmap(self.records.as_ptr().cast(), page_size() + 2 * self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rustix::mm::mmap_anonymous;

    use super::*;

    const BYTES: usize = 4_096;

    /// A ring buffer whose memory is not the kernel's: the second copy of the data is apart.
    fn ring() -> RingBuffer {
        let allocate = |bytes: usize| {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice touches no memory.
            let memory = unsafe {
                mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE).unwrap()
            };
            NonNull::new(memory.cast()).unwrap()
        };
        RingBuffer {
            map: BpfMap::from(std::os::fd::OwnedFd::from(File::open("/dev/null").unwrap())),
            bytes: BYTES,
            reader: allocate(page_size()),
            records: allocate(page_size() + 2 * BYTES),
        }
    }

    /// Writes a record with these flags, as programs do. `position` is that behind the last one.
    fn write(ring: &RingBuffer, position: u64, flags: u32, content: &[u8]) -> u64 {
        let record = ring.record(position);
        // SAFETY: the record is inside of the memory, aligned, and no reference to it exists.
        unsafe {
            record.cast::<u32>().write(content.len() as u32 | flags);
            let to = record.add(HEADER_BYTES).as_ptr();
            ptr::copy_nonoverlapping(content.as_ptr(), to, content.len());
        }
        let next = position + (content.len() + HEADER_BYTES).next_multiple_of(8) as u64;
        ring.written().store(next, Ordering::Release);
        next
    }

    fn read(ring: &mut RingBuffer) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        let count = ring.read(&mut |record| records.push(record.to_vec()));
        assert_eq!(count, records.len());
        records
    }

    #[test]
    fn records_are_read_in_order_up_to_one_that_is_being_written() {
        let mut ring = ring();
        assert!(read(&mut ring).is_empty());
        let mut next = write(&ring, 0, 0, b"first");
        next = write(&ring, next, 1 << 30, b"discarded");
        next = write(&ring, next, 0, b"");
        let busy = next;
        next = write(&ring, next, 1 << 31, b"busy");
        write(&ring, next, 0, b"behind");
        assert_eq!(read(&mut ring), [b"first".to_vec(), Vec::new()]);
        assert!(read(&mut ring).is_empty());
        write(&ring, busy, 0, b"busy");
        ring.written().store(next + 16, Ordering::Release);
        assert_eq!(read(&mut ring), [b"busy".to_vec(), b"behind".to_vec()]);
    }

    #[test]
    fn positions_go_around() {
        let mut ring = ring();
        let mut next = 0;
        for round in 0..100_u8 {
            let content = vec![round; 1_000];
            next = write(&ring, next, 0, &content);
            assert_eq!(read(&mut ring), [content]);
        }
        assert!(next > 20 * BYTES as u64);
    }

    #[test]
    fn a_record_is_given_back_although_its_reader_panics() {
        let mut ring = ring();
        let next = write(&ring, 0, 0, b"bad");
        let reading = AssertUnwindSafe(|| ring.read(&mut |_| panic!("a bad record")));
        assert!(catch_unwind(reading).is_err());
        assert_eq!(ring.consumed().load(Ordering::Relaxed), next);
        assert!(read(&mut ring).is_empty());
    }

    #[test]
    fn a_length_beyond_the_data_is_not_read() {
        let mut ring = ring();
        write(&ring, 0, BYTES as u32, b"");
        assert!(read(&mut ring).is_empty());
    }
}
