//! The process table as a file: readers see what was published, also when a writer or reader dies,
//! and its page lists its bytes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use shm::process_table::{
    BUFFER_FIELDS, BUFFER_HEAD_BYTES, CollectionInfo, CollectionMethod, Error, FILE_NAME,
    FIRST_BUFFER, HEADER_BYTES, HEADER_FIELDS, LOCK_NAME, MAGIC, ProcessRow, ROW_BYTES, ROW_FIELDS,
    TableWriter, VERSION, read,
};

use crate::page::check_fields;
use crate::test_dir::TestDir;

const PAGE: &str = include_str!("../../../../docs/formats/process-table.md");

/// Table file of a directory.
fn file(dir: &TestDir) -> PathBuf {
    dir.0.join(FILE_NAME)
}

fn collection_info(at_ns: u64) -> CollectionInfo {
    CollectionInfo {
        started_ns: at_ns,
        unix_ns: -1,
        method: CollectionMethod::Procfs,
        ticks_per_second: 100,
    }
}

fn rows(count: u32, mark: u64) -> Vec<ProcessRow> {
    let row = |pid| ProcessRow { pid, user_ns: mark, comm: [b'x'; 16], ..ProcessRow::default() };
    (1..=count).map(row).collect()
}

#[test]
fn published_table_is_read() {
    let Some(dir) = TestDir::new() else { return };
    let mut writer = TableWriter::new(&dir.0).unwrap();
    assert!(matches!(read(&file(&dir)), Err(Error::Io { .. })), "there is none yet");
    // 5,000 rows need a larger file, which replaces the first.
    for (round, count) in [3, 0, 511, 5_000, 2, 6_000].into_iter().enumerate() {
        let published = rows(count, round as u64);
        writer.publish(&collection_info(round as u64), &published).unwrap();
        let table = read(&file(&dir)).unwrap();
        assert_eq!(
            (table.collection, &table.processes),
            (collection_info(round as u64), &published)
        );
    }
    let mode = fs::metadata(file(&dir)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "all may read it");
    drop(writer);
    assert!(!file(&dir).exists(), "a table that nobody writes is taken away");
}

#[test]
fn there_is_one_writer() {
    let Some(dir) = TestDir::new() else { return };
    let mut first = TableWriter::new(&dir.0).unwrap();
    first.publish(&collection_info(1), &rows(1, 1)).unwrap();
    assert!(matches!(TableWriter::new(&dir.0), Err(Error::WriterExists { .. })));
    let mode = fs::metadata(dir.0.join(LOCK_NAME)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "no other user can lock it");
    drop(first);
    // Files left by a killed writer.
    fs::write(file(&dir), "old").unwrap();
    fs::write(dir.0.join("processes.tdp.new"), "older").unwrap();
    let mut next = TableWriter::new(&dir.0).unwrap();
    next.publish(&collection_info(2), &rows(1, 2)).unwrap();
    assert_eq!(read(&file(&dir)).unwrap().collection.started_ns, 2);
}

#[test]
fn concurrent_reader_sees_whole_tables() {
    let Some(dir) = TestDir::new() else { return };
    let mut writer = TableWriter::new(&dir.0).unwrap();
    writer.publish(&collection_info(1), &rows(300, 1)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Without pauses: a reader gets a consistent table or an error.
            for mark in 2..3_000 {
                writer.publish(&collection_info(mark), &rows(300, mark)).unwrap();
            }
            is_over.store(true, Ordering::Release);
        });
        let mut newest = 0;
        while !is_over.load(Ordering::Acquire) {
            match read(&file(&dir)) {
                Ok(table) => {
                    let mark = table.collection.started_ns;
                    assert!(table.processes.iter().all(|row| row.user_ns == mark));
                    assert!(table.processes.len() == 300 && mark >= newest);
                    newest = mark;
                }
                Err(Error::Overwritten { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert_eq!(read(&file(&dir)).unwrap().collection.started_ns, 2_999);
}

#[test]
fn disks_links_and_other_files_are_rejected() {
    let Some(dir) = TestDir::new() else { return };
    let no_tmpfs = Path::new("/proc");
    assert!(matches!(TableWriter::new(no_tmpfs), Err(Error::NotTmpfs { .. })));
    fs::write(dir.0.join("other"), [0; 4_096]).unwrap();
    assert!(matches!(read(&dir.0.join("other")), Err(Error::Damaged { field: "magic", .. })));
    symlink(dir.0.join("other"), file(&dir)).unwrap();
    assert!(matches!(read(&file(&dir)), Err(Error::Io { action: "open", .. })));
    assert!(matches!(read(&dir.0), Err(Error::Io { action: "read", .. })));
    fs::remove_file(file(&dir)).unwrap();
    symlink("/etc/passwd", dir.0.join(LOCK_NAME)).unwrap();
    assert!(matches!(TableWriter::new(&dir.0), Err(Error::Io { action: "open", .. })));
}

/// A table of two rows, encoded from the layout tables, not by the writer, which needs a tmpfs.
pub(crate) fn two_rows() -> Vec<u8> {
    const CAPACITY: usize = 512;
    let mut bytes = vec![0; FIRST_BUFFER as usize + 2 * CAPACITY];
    let base = FIRST_BUFFER as usize + CAPACITY;
    let mut put = |fields: &[shm::process_table::Field], base: usize, name: &str, value: u64| {
        let (_, offset, size) = fields.iter().find(|field| field.0 == name).unwrap();
        bytes[base + offset..][..*size].copy_from_slice(&value.to_le_bytes()[..*size]);
    };
    put(&HEADER_FIELDS, 0, "magic", u64::from_le_bytes(MAGIC));
    for (name, value) in [
        ("version", VERSION.into()),
        ("row_bytes", ROW_BYTES as u64),
        ("capacity", CAPACITY as u64),
        ("generation", 1),
        ("ticks_per_second", 100),
    ] {
        put(&HEADER_FIELDS, 0, name, value);
    }
    for (name, value) in [("before", 1), ("after", 1), ("method", 1), ("count", 2)] {
        put(&BUFFER_FIELDS, base, name, value);
    }
    bytes
}

#[test]
fn page_matches_the_layout() {
    check_fields(PAGE, "## Header", &HEADER_FIELDS);
    check_fields(PAGE, "## Buffer", &BUFFER_FIELDS);
    check_fields(PAGE, "## Row", &ROW_FIELDS);
    for text in [
        format!("| magic | `{}` |", MAGIC.escape_ascii()),
        format!("| version | {VERSION} |"),
        format!("| row_bytes | {ROW_BYTES} |"),
        format!("The header has {HEADER_BYTES} bytes"),
        format!("The first buffer begins at {FIRST_BUFFER}"),
        format!("rows begin {BUFFER_HEAD_BYTES} bytes into it"),
        format!("`{FILE_NAME}`"),
        format!("`{LOCK_NAME}`"),
    ] {
        assert!(PAGE.contains(&text), "{text}");
    }
}

proptest! {
    #[test]
    fn changed_tables_pass_the_checks(changes in prop::collection::vec((0usize..5_120, any::<u8>()), 0..6)) {
        let mut bytes = two_rows();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        crate::checks::CHECKS.iter().for_each(|(_, check)| check(&bytes));
    }
}
