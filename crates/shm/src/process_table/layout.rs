//! Layout of the process table. Numbers are little-endian.
//!
//! ```text
//! 0                 header
//! 4096              buffer of even generations: head, rows
//! 4096 + capacity   buffer of odd generations
//! ```
//! Generations count from 1. A buffer is consistent if its words `before` and `after` are equal:
//! the writer stores `before`, everything else, `after`, and the header's `generation`, in this
//! order; a reader loads them in the opposite order.

use super::{CollectionInfo, CollectionMethod, Error, ProcessRow, Result};

pub use crate::layout::Field;

/// First bytes of a file.
pub const MAGIC: [u8; 8] = *b"tdProces";
/// The only version; readers refuse any other.
pub const VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Offset of the first buffer: a page of its own.
pub const FIRST_BUFFER: u64 = 4_096;
/// Bytes of a buffer before its rows.
pub const BUFFER_HEAD_BYTES: usize = 64;
/// Bytes of a row.
pub const ROW_BYTES: usize = 112;
/// Limit of processes: the kernel's limit (`PID_MAX_LIMIT`).
pub const PROCESSES_MAX: usize = 1 << 22;

/// Header.
pub const HEADER_FIELDS: [Field; 7] = [
    ("magic", 0, 8),
    ("version", 8, 4),
    ("row_bytes", 12, 4),
    ("capacity", 16, 8),
    ("generation", 24, 8),
    ("ticks_per_second", 32, 4),
    ("reserved", 36, 28),
];
/// Head of a buffer.
pub const BUFFER_FIELDS: [Field; 7] = [
    ("before", 0, 8),
    ("after", 8, 8),
    ("collected_at", 16, 8),
    ("unix_time", 24, 8),
    ("method", 32, 4),
    ("count", 36, 4),
    ("reserved", 40, 24),
];
/// Row.
pub const ROW_FIELDS: [Field; 16] = [
    ("pid", 0, 4),
    ("ppid", 4, 4),
    ("uid", 8, 4),
    ("threads", 12, 4),
    ("start", 16, 8),
    ("comm", 24, 16),
    ("state", 40, 1),
    ("reserved", 41, 7),
    ("user", 48, 8),
    ("system", 56, 8),
    ("minor_faults", 64, 8),
    ("major_faults", 72, 8),
    ("rss", 80, 8),
    ("voluntary_switches", 88, 8),
    ("involuntary_switches", 96, 8),
    ("run_delay", 104, 8),
];

/// Offset in the header of the newest generation.
pub(super) const GENERATION: u64 = HEADER_FIELDS[4].1 as u64;
/// Offset in a buffer of the word that is stored last.
pub(super) const AFTER: u64 = BUFFER_FIELDS[1].1 as u64;
/// Offset in a buffer of the part that is stored between the two words.
pub(super) const MIDDLE: u64 = BUFFER_FIELDS[2].1 as u64;
/// Encoding of an unknown number.
const NOT_REPORTED: u64 = u64::MAX;

const _: () = assert!(are_contiguous(&HEADER_FIELDS, HEADER_BYTES));
const _: () = assert!(are_contiguous(&BUFFER_FIELDS, BUFFER_HEAD_BYTES));
const _: () = assert!(are_contiguous(&ROW_FIELDS, ROW_BYTES));

/// Whether the fields are contiguous up to `end`.
const fn are_contiguous(fields: &[Field], end: usize) -> bool {
    let (mut at, mut i) = (0, 0);
    while i < fields.len() {
        if fields[i].1 != at {
            return false;
        }
        at += fields[i].2;
        i += 1;
    }
    at == end
}

/// Header without the newest generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableHeader {
    /// Size of a buffer in bytes.
    pub(super) capacity: u64,
    pub(super) ticks_per_second: u32,
}

impl TableHeader {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut out = FieldEncoder(&mut bytes);
        out.put(MAGIC);
        out.put(VERSION.to_le_bytes());
        out.put((ROW_BYTES as u32).to_le_bytes());
        out.put(self.capacity.to_le_bytes());
        out.put(0u64.to_le_bytes());
        out.put(self.ticks_per_second.to_le_bytes());
        bytes
    }

    /// Parses the header; also returns the newest generation.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<(TableHeader, u64)> {
        let mut from = FieldDecoder(bytes);
        let damaged = |what, found| Err(Error::Damaged { field: what, found });
        let magic = from.read_array();
        if magic != MAGIC {
            return damaged("magic", u64::from_be_bytes(magic));
        }
        let version = from.u32();
        if version != VERSION {
            return damaged("version", version.into());
        }
        let row_bytes = from.u32();
        if row_bytes as usize != ROW_BYTES {
            return damaged("row_bytes", row_bytes.into());
        }
        let capacity = from.u64();
        let max = BUFFER_HEAD_BYTES + PROCESSES_MAX * ROW_BYTES + FIRST_BUFFER as usize;
        if capacity < BUFFER_HEAD_BYTES as u64 || capacity > max as u64 {
            return damaged("capacity", capacity);
        }
        let generation = from.u64();
        let ticks_per_second = from.u32();
        if ticks_per_second == 0 {
            return damaged("ticks_per_second", 0);
        }
        Ok((TableHeader { capacity, ticks_per_second }, generation))
    }

    /// Offset of the buffer of a generation.
    pub(super) fn buffer(&self, generation: u64) -> u64 {
        FIRST_BUFFER + generation % 2 * self.capacity
    }

    /// Size of the file in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        FIRST_BUFFER + 2 * self.capacity
    }
}

/// Head of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableBufferHeader {
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) at_ns: u64,
    pub(super) unix_ns: i64,
    pub(super) method: u32,
    pub(super) count: u32,
}

impl TableBufferHeader {
    pub(super) fn new(
        generation: u64,
        collection: &CollectionInfo,
        count: u32,
    ) -> TableBufferHeader {
        let method = match collection.method {
            CollectionMethod::Bpf => 1,
            CollectionMethod::Procfs => 2,
        };
        let (at_ns, unix_ns) = (collection.started_ns, collection.unix_ns);
        TableBufferHeader { before: generation, after: generation, at_ns, unix_ns, method, count }
    }

    pub(super) fn encode(&self) -> [u8; BUFFER_HEAD_BYTES] {
        let mut bytes = [0; BUFFER_HEAD_BYTES];
        let mut out = FieldEncoder(&mut bytes);
        out.put(self.before.to_le_bytes());
        out.put(self.after.to_le_bytes());
        out.put(self.at_ns.to_le_bytes());
        out.put(self.unix_ns.to_le_bytes());
        out.put(self.method.to_le_bytes());
        out.put(self.count.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; BUFFER_HEAD_BYTES]) -> TableBufferHeader {
        let mut from = FieldDecoder(bytes);
        TableBufferHeader {
            before: from.u64(),
            after: from.u64(),
            at_ns: from.u64(),
            unix_ns: i64::from_le_bytes(from.read_array()),
            method: from.u32(),
            count: from.u32(),
        }
    }

    pub(super) fn method(&self) -> Result<CollectionMethod> {
        match self.method {
            1 => Ok(CollectionMethod::Bpf),
            2 => Ok(CollectionMethod::Procfs),
            other => Err(Error::Damaged { field: "method", found: other.into() }),
        }
    }
}

/// Appends a row.
pub(super) fn put_row(process: &ProcessRow, rows: &mut Vec<u8>) {
    let reported = |number: Option<u64>| number.unwrap_or(NOT_REPORTED).to_le_bytes();
    let mut bytes = [0; ROW_BYTES];
    let mut out = FieldEncoder(&mut bytes);
    for number in [process.pid, process.ppid, process.uid, process.threads] {
        out.put(number.to_le_bytes());
    }
    out.put(process.start.to_le_bytes());
    out.put(process.comm);
    out.put([process.state]);
    out.put([0; 7]);
    out.put(process.user_ns.to_le_bytes());
    out.put(process.system_ns.to_le_bytes());
    out.put(process.minor_faults.to_le_bytes());
    out.put(process.major_faults.to_le_bytes());
    out.put(process.rss_bytes.to_le_bytes());
    out.put(reported(process.voluntary_switches));
    out.put(reported(process.involuntary_switches));
    out.put(reported(process.run_delay_ns));
    rows.extend_from_slice(&bytes);
}

pub(super) fn decode_row(bytes: &[u8; ROW_BYTES]) -> ProcessRow {
    let mut from = FieldDecoder(bytes);
    let (pid, ppid, uid, threads) = (from.u32(), from.u32(), from.u32(), from.u32());
    let (start, comm) = (from.u64(), from.read_array());
    let [state, ..] = from.read_array::<8>();
    let (user_ns, system_ns) = (from.u64(), from.u64());
    let (minor_faults, major_faults, rss_bytes) = (from.u64(), from.u64(), from.u64());
    let mut reported = || Some(from.u64()).filter(|&number| number != NOT_REPORTED);
    ProcessRow {
        pid,
        ppid,
        uid,
        threads,
        start,
        comm,
        state,
        user_ns,
        system_ns,
        minor_faults,
        major_faults,
        rss_bytes,
        voluntary_switches: reported(),
        involuntary_switches: reported(),
        run_delay_ns: reported(),
    }
}

/// Writes fixed-size fields. The assertions above ensure that they fit.
struct FieldEncoder<'a>(&'a mut [u8]);

impl FieldEncoder<'_> {
    fn put<const N: usize>(&mut self, value: [u8; N]) {
        let (here, rest) = std::mem::take(&mut self.0).split_at_mut(N);
        here.copy_from_slice(&value);
        self.0 = rest;
    }
}

/// Reads fixed-size fields. As with [`FieldEncoder`], sizes are fixed.
struct FieldDecoder<'a>(&'a [u8]);

impl FieldDecoder<'_> {
    fn read_array<const N: usize>(&mut self) -> [u8; N] {
        let (here, rest) = self.0.split_first_chunk().expect("BUG: a field outside its struct");
        self.0 = rest;
        *here
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.read_array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.read_array())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value of a field by its name.
    #[track_caller]
    fn check(bytes: &[u8], fields: &[Field], name: &str, expected: u64) {
        let (_, offset, size) = fields.iter().find(|field| field.0 == name).unwrap();
        let mut word = [0; 8];
        word[..*size].copy_from_slice(&bytes[*offset..][..*size]);
        assert_eq!(u64::from_le_bytes(word), expected, "{name}");
    }

    #[test]
    fn fields_match_the_layout() {
        let header = TableHeader { capacity: 4_000, ticks_per_second: 100 };
        let bytes = header.encode();
        check(&bytes, &HEADER_FIELDS, "version", VERSION.into());
        check(&bytes, &HEADER_FIELDS, "row_bytes", ROW_BYTES as u64);
        check(&bytes, &HEADER_FIELDS, "capacity", 4_000);
        check(&bytes, &HEADER_FIELDS, "ticks_per_second", 100);
        assert_eq!(TableHeader::parse(&bytes).unwrap(), (header, 0));
        let taken = CollectionInfo {
            started_ns: 2,
            unix_ns: 3,
            method: CollectionMethod::Procfs,
            ticks_per_second: 100,
        };
        let head = TableBufferHeader::new(1, &taken, 4);
        let bytes = head.encode();
        for (name, expected) in [
            ("before", 1),
            ("after", 1),
            ("collected_at", 2),
            ("unix_time", 3),
            ("method", 2),
            ("count", 4),
        ] {
            check(&bytes, &BUFFER_FIELDS, name, expected);
        }
        assert_eq!(TableBufferHeader::parse(&bytes), head);
    }

    #[test]
    fn rows_match_the_layout() {
        let process = ProcessRow {
            pid: 1,
            ppid: 2,
            uid: 3,
            threads: 4,
            start: 5,
            comm: *b"a name of 15 by\0",
            state: b'S',
            user_ns: 6,
            system_ns: 7,
            minor_faults: 8,
            major_faults: 9,
            rss_bytes: 10,
            voluntary_switches: Some(11),
            involuntary_switches: None,
            run_delay_ns: Some(0),
        };
        let mut bytes = Vec::new();
        put_row(&process, &mut bytes);
        let names = ["pid", "ppid", "uid", "threads", "start", "user", "system", "minor_faults"];
        for (name, expected) in names.into_iter().zip(1..) {
            check(&bytes, &ROW_FIELDS, name, expected);
        }
        for (name, expected) in [
            ("state", b'S'.into()),
            ("major_faults", 9),
            ("rss", 10),
            ("voluntary_switches", 11),
            ("involuntary_switches", u64::MAX),
            ("run_delay", 0),
        ] {
            check(&bytes, &ROW_FIELDS, name, expected);
        }
        assert_eq!(decode_row(bytes.first_chunk().unwrap()), process);
        assert_eq!(process.name(), "a name of 15 by");
    }
}
