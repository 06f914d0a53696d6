//! Injected faults and damage.

use std::io::ErrorKind;
use std::path::Path;

use disk::{Disk, File, OpenMode};
use sim::{DiskOperation, Fault, FaultKind, SimDisk, SimProcess};

use crate::{open, put, read};

fn disk() -> (SimDisk, SimProcess) {
    let disk = SimDisk::new(1);
    let process = disk.process();
    (disk, process)
}

fn inject(disk: &SimDisk, operation: DiskOperation, kind: FaultKind) {
    let path_contains = "a".to_owned();
    disk.inject(Fault { operation, path_contains, skip: 0, times: 1, kind });
}

#[test]
fn each_operation_can_fail() {
    type IoCall = fn(&dyn Disk, &dyn File) -> std::io::Result<()>;
    let cases: [(DiskOperation, IoCall); 15] = [
        (DiskOperation::Read, |_, file| file.read_at(&mut [0], 0).map(drop)),
        (DiskOperation::Write, |_, file| file.write_at(b"x", 0).map(drop)),
        (DiskOperation::SetLen, |_, file| file.set_len(9000)),
        (DiskOperation::Allocate, |_, file| file.allocate(9000)),
        (DiskOperation::Sync, |_, file| file.sync()),
        (DiskOperation::Lock, |_, file| file.lock()),
        (DiskOperation::Map, |_, file| file.map(8192).map(drop)),
        (DiskOperation::Open, |disk, _| disk.open(Path::new("/dir/a"), OpenMode::Create).map(drop)),
        (DiskOperation::Create, |disk, _| {
            disk.open(Path::new("/dir/a2"), OpenMode::Create).map(drop)
        }),
        (DiskOperation::CreateDir, |disk, _| disk.create_dir(Path::new("/dir/a3"))),
        (DiskOperation::List, |disk, _| disk.list(Path::new("/dir")).map(drop)),
        (DiskOperation::Link, |disk, _| disk.link(Path::new("/dir/a"), Path::new("/dir/c"))),
        (DiskOperation::Rename, |disk, _| disk.rename(Path::new("/dir/a"), Path::new("/dir/b"))),
        (DiskOperation::Remove, |disk, _| disk.remove(Path::new("/dir/b"))),
        (DiskOperation::SyncDir, |disk, _| disk.sync_dir(Path::new("/dir"))),
    ];
    let (disk, process) = disk();
    process.create_dir(Path::new("/dir")).unwrap();
    let file = put(&process, "/dir/a", &[0; 8192]);
    for (operation, act) in cases {
        let path_contains = "/dir".to_owned();
        disk.inject(Fault { operation, path_contains, skip: 0, times: 1, kind: FaultKind::Os(5) });
        let before = (disk.files(), disk.contents("/dir/a"));
        let error = act(&process, &*file).expect_err(&format!("{operation:?}"));
        assert_eq!(error.raw_os_error(), Some(5), "{operation:?}");
        assert!(before == (disk.files(), disk.contents("/dir/a")), "{operation:?} was done");
        act(&process, &*file).unwrap();
    }
}

#[test]
fn a_fault_strikes_where_and_when_it_should() {
    let (disk, process) = disk();
    let (a, b) = (open(&process, "/a"), open(&process, "/b"));
    let kind = FaultKind::Error(ErrorKind::StorageFull);
    let path_contains = "a".to_owned();
    disk.inject(Fault { operation: DiskOperation::Write, path_contains, skip: 2, times: 2, kind });
    let mut kinds = Vec::new();
    for _ in 0..6 {
        b.write_at(b"x", 0).unwrap();
        a.read_at(&mut [0], 0).unwrap();
        kinds.push(a.write_at(b"x", 0).map_err(|error| error.kind()));
    }
    let full = Err(ErrorKind::StorageFull);
    assert_eq!(kinds, [Ok(1), Ok(1), full, full, Ok(1), Ok(1)]);
    assert_eq!(disk.fault_hits(), 2);
    // The fault matches the current path.
    process.rename(Path::new("/b"), Path::new("/aa")).unwrap();
    inject(&disk, DiskOperation::Write, kind);
    assert!(b.write_at(b"x", 0).is_err());
    inject(&disk, DiskOperation::Write, kind);
    disk.clear_faults();
    b.write_at(b"x", 0).unwrap();
}

#[test]
fn short_and_interrupted_operations_are_retried() {
    let (disk, process) = disk();
    let file = open(&process, "/a");
    let bytes: Vec<u8> = (0..100).collect();
    for operation in [DiskOperation::Write, DiskOperation::Read] {
        for kind in [FaultKind::ShortWrite, FaultKind::Interrupted] {
            let path_contains = String::new();
            disk.inject(Fault { operation, path_contains, skip: 0, times: 3, kind });
        }
    }
    let count = file.write_at(&bytes, 0).unwrap();
    assert!((1..100).contains(&count));
    file.write_all_at(&bytes, 0).unwrap();
    assert_eq!(disk.contents("/a").unwrap(), bytes);
    assert!((1..100).contains(&file.read_at(&mut [0; 100], 0).unwrap()));
    assert_eq!(read(&process, "/a"), bytes);
}

#[test]
#[should_panic(expected = "no part")]
fn not_everything_can_be_short() {
    inject(&disk().0, DiskOperation::Rename, FaultKind::ShortWrite);
}

#[test]
fn failed_sync_keeps_data_readable_until_power_loss() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let process = disk.process();
        let file = put(&process, "/a", b"old");
        file.sync().unwrap();
        process.sync_dir(Path::new("/")).unwrap();
        file.write_all_at(b"new", 0).unwrap();
        inject(&disk, DiskOperation::Sync, FaultKind::Os(5));
        assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
        file.write_all_at(b"more", 3).unwrap();
        file.sync().unwrap();
        assert_eq!(read(&process, "/a"), b"newmore");
        let again = disk.fork(seed);
        disk.power_cut();
        assert_eq!(disk.contents("/a").unwrap(), b"oldmore");
        // Written again, the data become durable.
        let process = again.process();
        let file = put(&process, "/a", b"new");
        file.sync().unwrap();
        again.power_cut();
        assert_eq!(again.contents("/a").unwrap(), b"newmore");
    }
}

#[test]
fn an_interrupted_sync_loses_nothing() {
    let (disk, process) = disk();
    let file = put(&process, "/a", b"abc");
    process.sync_dir(Path::new("/")).unwrap();
    inject(&disk, DiskOperation::Sync, FaultKind::Interrupted);
    assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::Interrupted);
    file.sync().unwrap();
    disk.power_cut();
    assert_eq!(disk.contents("/a").unwrap(), b"abc");
}

#[test]
fn damage_is_seen_and_stays() {
    let (disk, process) = disk();
    let file = put(&process, "/a", &[0; 9000]);
    file.sync().unwrap();
    process.sync_dir(Path::new("/")).unwrap();
    let region = file.map(8192).unwrap();
    disk.flip_bit("/a", 4097, 7);
    disk.flip_bit("/a", 8999, 0);
    disk.overwrite("/a", 5000, b"xyz");
    assert_eq!(region[0].load(std::sync::atomic::Ordering::Relaxed), 0x8000);
    let look = || {
        let bytes = disk.contents("/a").unwrap();
        (bytes[4097], bytes[8999], bytes[5000..5003].to_vec())
    };
    let expected = (128, 1, b"xyz".to_vec());
    assert_eq!(look(), expected);
    disk.power_cut();
    assert_eq!(look(), expected);
    disk.truncate("/a", 5001);
    disk.truncate("/a", 6000);
    assert_eq!(disk.files(), [("/a".into(), 5001)]);
    disk.power_cut();
    assert_eq!(disk.files(), [("/a".into(), 5001)]);
    assert_eq!(disk.contents("/b"), None);
}

#[test]
#[should_panic(expected = "there is no file")]
fn missing_file_cannot_be_damaged() {
    disk().0.flip_bit("/a", 0, 0);
}
