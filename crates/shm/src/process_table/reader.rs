//! Process table reader: never blocks on the writer, bounded retries.
//!
//! The file is untrusted: every offset is checked against its length.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use super::layout::{
    BUFFER_HEAD_BYTES, HEADER_BYTES, PROCESSES_MAX, ROW_BYTES, TableBufferHeader, TableHeader,
    decode_row,
};
use super::{CollectionInfo, Error, ProcessTable, Result};

/// Read attempts: when a table is overwritten during the read, a newer one is beside it.
const ATTEMPTS: u32 = 4;
/// Rows per read.
const ROWS_AT_ONCE: usize = 512;

/// Fills a buffer from an offset of the file.
type ReadAt<'a> = &'a mut dyn FnMut(&mut [u8], u64) -> io::Result<()>;

/// Reads the newest table of a file.
pub fn read(path: &Path) -> Result<ProcessTable> {
    with_open_file(path, newest)
}

/// Reads the newest table of a file and the one before it, from which the activity of each process
/// follows; `None` if there was none, or it was overwritten during each attempt.
pub fn read_newest_two(path: &Path) -> Result<(ProcessTable, Option<ProcessTable>)> {
    with_open_file(path, newest_two)
}

fn with_open_file<T>(
    path: &Path,
    read: impl FnOnce(ReadAt<'_>, u64) -> Result<T, TableReadError>,
) -> Result<T> {
    let failed =
        |doing, source: io::Error| Error::Io { action: doing, path: path.to_owned(), source };
    // A pipe in place of the file must not block the reader.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(|error| failed("open", error.into()))?;
    let file = File::from(file);
    let metadata = file.metadata().map_err(|error| failed("stat", error))?;
    if !metadata.is_file() {
        return Err(failed("read", io::Error::other("not a file")));
    }
    let read_at = &mut |buffer: &mut [u8], at| file.read_exact_at(buffer, at);
    read(read_at, metadata.len()).map_err(|error| match error {
        TableReadError::Table(error) => error,
        TableReadError::Io(error) => failed("read", error),
    })
}

pub(super) fn parse_bytes(bytes: &[u8]) -> Result<ProcessTable> {
    let read_at = &mut |buffer: &mut [u8], at: u64| {
        let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..buffer.len()));
        buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    };
    newest(read_at, bytes.len() as u64).map_err(|error| match error {
        TableReadError::Table(error) => error,
        TableReadError::Io(source) => Error::Io { action: "read", path: "a table".into(), source },
    })
}

/// Reason of a failed attempt.
enum TableReadError {
    Table(Error),
    Io(io::Error),
}

impl From<Error> for TableReadError {
    fn from(error: Error) -> TableReadError {
        TableReadError::Table(error)
    }
}

impl From<io::Error> for TableReadError {
    fn from(error: io::Error) -> TableReadError {
        TableReadError::Io(error)
    }
}

fn newest(read_at: ReadAt<'_>, length: u64) -> Result<ProcessTable, TableReadError> {
    with_header(read_at, length).map(|(table, _)| table)
}

fn newest_two(
    read_at: ReadAt<'_>,
    length: u64,
) -> Result<(ProcessTable, Option<ProcessTable>), TableReadError> {
    let mut tries = 1;
    loop {
        let (table, header) = with_header(read_at, length)?;
        let before = match table.generation {
            0..=1 => return Ok((table, None)),
            generation => attempt(read_at, &header, generation - 1)?,
        };
        // Its buffer is the next to be written: it is consistent again a second later.
        if before.is_some() || tries == ATTEMPTS {
            return Ok((table, before));
        }
        tries += 1;
    }
}

fn with_header(
    read_at: ReadAt<'_>,
    length: u64,
) -> Result<(ProcessTable, TableHeader), TableReadError> {
    let truncated = |need| TableReadError::Table(Error::Truncated { have: length, need });
    if length < HEADER_BYTES as u64 {
        return Err(truncated(HEADER_BYTES as u64));
    }
    for _ in 0..ATTEMPTS {
        let mut bytes = [0; HEADER_BYTES];
        read_at(&mut bytes, 0)?;
        let (header, generation) = TableHeader::parse(&bytes)?;
        if header.file_bytes() > length {
            return Err(truncated(header.file_bytes()));
        }
        if generation == 0 {
            return Err(Error::Empty.into());
        }
        if let Some(table) = attempt(read_at, &header, generation)? {
            return Ok((table, header));
        }
    }
    Err(Error::Overwritten { tries: ATTEMPTS }.into())
}

/// Reads one table; `None` if it was overwritten during the read.
fn attempt(
    read_at: ReadAt<'_>,
    header: &TableHeader,
    generation: u64,
) -> Result<Option<ProcessTable>, TableReadError> {
    let base = header.buffer(generation);
    let mut head = [0; BUFFER_HEAD_BYTES];
    read_at(&mut head, base)?;
    let head = TableBufferHeader::parse(&head);
    if head.after != generation || head.before != generation {
        return Ok(None);
    }
    let count = head.count as usize;
    let room = (header.capacity - BUFFER_HEAD_BYTES as u64) / ROW_BYTES as u64;
    let is_possible = count <= PROCESSES_MAX && u64::from(head.count) <= room;
    let mut processes = Vec::new();
    let mut buffer = vec![0; ROW_BYTES * ROWS_AT_ONCE.min(if is_possible { count } else { 0 })];
    let mut at = base + BUFFER_HEAD_BYTES as u64;
    while is_possible && processes.len() < count {
        let rows = (count - processes.len()).min(ROWS_AT_ONCE);
        let bytes = &mut buffer[..rows * ROW_BYTES];
        read_at(bytes, at)?;
        at += bytes.len() as u64;
        processes.extend(bytes.as_chunks::<ROW_BYTES>().0.iter().map(decode_row));
    }
    // A writer that overwrites the buffer stores this word first.
    let mut before = [0; 8];
    read_at(&mut before, base)?;
    if u64::from_le_bytes(before) != generation {
        return Ok(None);
    }
    if !is_possible {
        return Err(Error::Damaged { field: "count", found: head.count.into() }.into());
    }
    let collection = CollectionInfo {
        started_ns: head.at_ns,
        unix_ns: head.unix_ns,
        method: head.method()?,
        ticks_per_second: header.ticks_per_second,
    };
    Ok(Some(ProcessTable { collection, generation, processes }))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::writer::store_table;
    use super::super::{CollectionMethod, ProcessRow};
    use super::*;

    const HEADER: TableHeader = TableHeader { capacity: 8_192, ticks_per_second: 100 };
    const ROWS: usize = 60;

    /// Stores that publish a table with this generation in all rows.
    fn stores(generation: u64) -> Vec<(u64, Vec<u8>)> {
        let taken = CollectionInfo {
            started_ns: generation,
            unix_ns: 0,
            method: CollectionMethod::Bpf,
            ticks_per_second: 100,
        };
        let rows = [ProcessRow { start: generation, ..ProcessRow::default() }; ROWS];
        let mut stores = Vec::new();
        let head = TableBufferHeader::new(generation, &taken, ROWS as u32);
        store_table(&HEADER, &head, &rows, &mut Vec::new(), &mut |bytes, at| {
            // Split in two, as a reader may see it.
            let (left, right) = bytes.split_at(bytes.len() / 16 * 8);
            stores.push((at, left.to_vec()));
            stores.push((at + left.len() as u64, right.to_vec()));
            Ok(())
        })
        .unwrap();
        stores
    }

    fn file() -> Vec<u8> {
        let mut file = vec![0; HEADER.file_bytes() as usize];
        file[..HEADER_BYTES].copy_from_slice(&HEADER.encode());
        file
    }

    /// Reads while the writer does some of its stores before each load.
    fn race(first: usize, each: usize) -> Result<ProcessTable, TableReadError> {
        let file = RefCell::new(file());
        let mut todo = (1..40).flat_map(stores);
        let mut step = |count: usize| {
            for (at, bytes) in todo.by_ref().take(count) {
                file.borrow_mut()[at as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
        };
        step(first);
        newest(
            &mut |buffer, at| {
                step(each);
                buffer.copy_from_slice(&file.borrow()[at as usize..][..buffer.len()]);
                Ok(())
            },
            HEADER.file_bytes(),
        )
    }

    #[test]
    fn a_table_is_whole_or_none() {
        let (mut whole, mut none) = (0, 0);
        let one = stores(1).len();
        for first in one..6 * one {
            for each in 0..2 * one {
                match race(first, each) {
                    Ok(table) => {
                        whole += 1;
                        assert_eq!(table.processes.len(), ROWS);
                        assert_eq!(table.collection.started_ns, table.generation);
                        let of_it = |row: &ProcessRow| row.start == table.generation;
                        assert!(table.processes.iter().all(of_it), "{first} {each}");
                    }
                    Err(TableReadError::Table(Error::Overwritten { .. })) => none += 1,
                    Err(_) => panic!("{first} {each}"),
                }
            }
        }
        assert!(whole > 0 && none > 0, "{whole} whole, {none} overwritten");
    }

    #[test]
    fn slow_writer_does_not_block_readers() {
        let one = stores(1).len();
        // The writer is in the middle of the third table: the second is read.
        for extra in 0..one {
            let Ok(table) = race(2 * one + extra, 0) else { panic!("after {extra} stores") };
            assert_eq!(table.generation, 2, "after {extra} stores");
        }
    }

    #[test]
    fn the_table_before_is_the_one_before() {
        for generations in 1..6u64 {
            let mut file = file();
            for (at, bytes) in (1..=generations).flat_map(stores) {
                file[at as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            let read_at = &mut |buffer: &mut [u8], at: u64| {
                buffer.copy_from_slice(&file[at as usize..][..buffer.len()]);
                Ok(())
            };
            let Ok((table, before)) = newest_two(read_at, HEADER.file_bytes()) else { panic!() };
            assert_eq!(table.generation, generations);
            let before = before.map(|before| (before.generation, before.processes[0].start));
            let expected = generations.checked_sub(1).filter(|&before| before > 0);
            assert_eq!(before, expected.map(|before| (before, before)));
        }
        // The writer is in the middle of the next table: there is none before.
        let one = stores(1).len();
        let file = RefCell::new(file());
        for (at, bytes) in (1..=3).flat_map(stores).take(2 * one + 2) {
            file.borrow_mut()[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        let read_at = &mut |buffer: &mut [u8], at: u64| {
            buffer.copy_from_slice(&file.borrow()[at as usize..][..buffer.len()]);
            Ok(())
        };
        let Ok((table, before)) = newest_two(read_at, HEADER.file_bytes()) else { panic!() };
        assert_eq!((table.generation, before.is_none()), (2, true));
    }

    #[test]
    fn other_bytes_are_rejected() {
        let whole = {
            let mut file = file();
            for (at, bytes) in (1..3).flat_map(stores) {
                file[at as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            file
        };
        assert_eq!(parse_bytes(&whole).unwrap().generation, 2);
        for cut in [0, 7, 63, 64, 5_000, whole.len() - 1] {
            let error = parse_bytes(&whole[..cut]).unwrap_err();
            assert!(matches!(error, Error::Truncated { .. }), "{cut}: {error}");
        }
        assert!(matches!(parse_bytes(&file()), Err(Error::Empty)));
        let base = HEADER.buffer(2) as usize;
        for at in (0..HEADER_BYTES).chain(base..base + BUFFER_HEAD_BYTES) {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = parse_bytes(&changed);
            }
        }
    }
}
