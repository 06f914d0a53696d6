//! A full disk.

use std::io::ErrorKind;
use std::path::Path;

use disk::{Disk, OpenMode};
use sim::{SimDisk, SimProcess};

use crate::{open, put};

const PAGE: u64 = 4096;

fn disk(pages: u64) -> (SimDisk, SimProcess) {
    let disk = SimDisk::new(1);
    disk.set_capacity(pages * PAGE + 100);
    let process = disk.process();
    (disk, process)
}

#[track_caller]
fn is_full<T>(result: std::io::Result<T>) {
    assert_eq!(result.map(drop).unwrap_err().kind(), ErrorKind::StorageFull);
}

#[test]
fn write_is_short_when_disk_is_full() {
    let (disk, process) = disk(3);
    let file = put(&process, "/a", &[1; 5000]);
    assert_eq!(disk.used_bytes(), 2 * PAGE);
    assert_eq!(file.write_at(&[2; 9000], 5000).unwrap(), 3 * 4096 - 5000);
    is_full(file.write_at(b"x", 3 * PAGE));
    is_full(process.open(Path::new("/b"), OpenMode::Create));
    file.write_all_at(&[3; 12_288], 0).unwrap();
    assert_eq!(file.len().unwrap(), 3 * PAGE);
}

#[test]
fn allocated_space_is_writable() {
    let (disk, process) = disk(4);
    let (a, b) = (open(&process, "/a"), open(&process, "/b"));
    a.allocate(3 * PAGE).unwrap();
    is_full(b.allocate(2 * PAGE));
    assert!(b.is_empty().unwrap());
    b.set_len(100 * PAGE).unwrap();
    b.write_all_at(b"x", 50 * PAGE).unwrap();
    is_full(b.write_at(b"x", 51 * PAGE));
    is_full(b.map(2 * PAGE));
    a.write_all_at(&vec![1; 3 * PAGE as usize], 0).unwrap();
    assert_eq!(disk.used_bytes(), 4 * PAGE);
}

#[test]
fn space_is_freed_with_the_last_reference() {
    let (disk, process) = disk(2);
    let path = Path::new("/a");
    let file = put(&process, path, &[1; 8192]);
    let region = file.map(8192).unwrap();
    process.remove(path).unwrap();
    is_full(process.open(path, OpenMode::Create));
    drop(file);
    is_full(process.open(path, OpenMode::Create));
    drop(region);
    assert_eq!(disk.used_bytes(), 0);
    let file = put(&process, path, &[2; 8192]);
    file.set_len(4096).unwrap();
    put(&process, "/b", &[2; 4096]);
    process.rename(Path::new("/b"), path).unwrap();
    assert_eq!(disk.used_bytes(), 2 * PAGE);
    process.kill();
    assert_eq!(disk.used_bytes(), PAGE);
}
