//! One suite for both disks: the real and the simulated one behave the same.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread;
use std::time::Duration;

use disk::{Disk, FUTEX_BYTES, File, OpenMode, OsDisk};
use sim::SimDisk;

use crate::{SleepingThread, TempDir, open, put, read};

/// Runs a test on both disks, in an empty directory.
#[track_caller]
fn check(test: impl Fn(&dyn Disk, &Path)) {
    let temp = TempDir::new();
    test(&OsDisk, &temp.0);
    let sim = SimDisk::new(1).process();
    sim.create_dir(Path::new("/directory")).unwrap();
    test(&sim, Path::new("/directory"));
}

#[track_caller]
fn fails<T>(result: std::io::Result<T>, kind: ErrorKind) {
    match result {
        Ok(_) => panic!("no error, but {kind:?} was expected"),
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
    }
}

fn list(disk: &dyn Disk, dir: &Path) -> Vec<String> {
    let mut names = disk.list(dir).unwrap();
    names.sort();
    names
}

#[test]
fn modes() {
    check(|disk, dir| {
        let path = dir.join("a");
        for mode in [OpenMode::Read, OpenMode::Write] {
            fails(disk.open(&path, mode), ErrorKind::NotFound);
        }
        disk.open(&path, OpenMode::CreateNew).unwrap().write_all_at(b"abc", 0).unwrap();
        fails(disk.open(&path, OpenMode::CreateNew), ErrorKind::AlreadyExists);
        assert_eq!(disk.open(&path, OpenMode::Create).unwrap().len().unwrap(), 3);
        disk.open(&path, OpenMode::Write).unwrap().write_all_at(b"x", 1).unwrap();
        assert_eq!(read(disk, &path), b"axc");
        for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Create, OpenMode::CreateNew] {
            fails(disk.open(&dir.join("none/a"), mode), ErrorKind::NotFound);
            fails(disk.open(&path.join("b"), mode), ErrorKind::NotADirectory);
        }
        fails(disk.open(dir, OpenMode::Write), ErrorKind::IsADirectory);
    });
}

#[test]
fn a_file_open_to_read_is_not_changed() {
    check(|disk, dir| {
        let path = dir.join("a");
        put(disk, &path, &[7; 8192]);
        let file = disk.open(&path, OpenMode::Read).unwrap();
        assert!(file.write_at(b"x", 0).is_err());
        fails(file.set_len(1), ErrorKind::InvalidInput);
        assert!(file.allocate(10_000).is_err());
        fails(file.map(8192), ErrorKind::PermissionDenied);
        file.sync().unwrap();
        assert_eq!(read(disk, &path), [7; 8192]);
    });
}

#[test]
fn reads_end_with_the_file_and_holes_are_zero() {
    check(|disk, dir| {
        let file = put(disk, dir.join("a"), b"abc");
        let mut bytes = [9; 5];
        assert_eq!(file.read_at(&mut bytes, 1).unwrap(), 2);
        assert_eq!(&bytes, b"bc\x09\x09\x09");
        assert_eq!(file.read_at(&mut bytes, 3).unwrap(), 0);
        assert_eq!(file.read_at(&mut bytes, 1 << 40).unwrap(), 0);
        assert_eq!(file.read_at(&mut [], 0).unwrap(), 0);
        fails(file.read_at(&mut bytes, u64::MAX), ErrorKind::InvalidInput);
        fails(file.write_at(b"x", u64::MAX), ErrorKind::InvalidInput);
        assert_eq!(file.write_at(b"", 9).unwrap(), 0);
        assert_eq!(file.len().unwrap(), 3);
        file.write_all_at(b"z", 6).unwrap();
        assert_eq!(read(disk, dir.join("a")), b"abc\0\0\0z");
        assert!(!file.is_empty().unwrap());
    });
}

#[test]
fn truncated_range_reads_as_zeros() {
    check(|disk, dir| {
        let file = put(disk, dir.join("a"), &[7; 10_000]);
        file.set_len(3).unwrap();
        file.set_len(9000).unwrap();
        let mut expected = vec![0; 9000];
        expected[..3].fill(7);
        assert_eq!(read(disk, dir.join("a")), expected);
        file.set_len(0).unwrap();
        assert!(file.is_empty().unwrap());
        fails(file.set_len(u64::MAX), ErrorKind::InvalidInput);
    });
}

#[test]
fn allocate_lengthens_and_never_cuts() {
    check(|disk, dir| {
        let file = put(disk, dir.join("a"), b"abc");
        file.allocate(0).unwrap();
        file.allocate(2).unwrap();
        assert_eq!(file.len().unwrap(), 3);
        file.allocate(6).unwrap();
        assert_eq!(read(disk, dir.join("a")), b"abc\0\0\0");
        assert!(file.allocate(u64::MAX).is_err());
    });
}

#[test]
fn create_dir_makes_parents() {
    check(|disk, dir| {
        let deep = dir.join("x/y/z");
        disk.create_dir(&deep).unwrap();
        disk.create_dir(&deep).unwrap();
        put(disk, deep.join("a"), b"");
        put(disk, dir.join("b"), b"");
        assert_eq!(list(disk, &deep), ["a"]);
        assert_eq!(list(disk, dir), ["b"]);
        disk.sync_dir(&deep).unwrap();
        fails(disk.create_dir(&dir.join("b")), ErrorKind::AlreadyExists);
        fails(disk.create_dir(&dir.join("b/c")), ErrorKind::NotADirectory);
        fails(disk.list(&dir.join("none")), ErrorKind::NotFound);
        fails(disk.list(&dir.join("b")), ErrorKind::NotADirectory);
        fails(disk.sync_dir(&dir.join("none")), ErrorKind::NotFound);
    });
}

#[test]
fn a_link_is_a_second_name() {
    check(|disk, dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        let file = put(disk, &a, b"one");
        disk.link(&a, &b).unwrap();
        file.write_all_at(b"T", 0).unwrap();
        assert_eq!(read(disk, &b), b"Tne");
        fails(disk.link(&a, &b), ErrorKind::AlreadyExists);
        fails(disk.link(&dir.join("none"), &dir.join("c")), ErrorKind::NotFound);
        disk.remove(&a).unwrap();
        assert_eq!((list(disk, dir), read(disk, &b)), (vec!["b".to_owned()], b"Tne".to_vec()));
    });
}

#[test]
fn rename_replaces_the_target() {
    check(|disk, dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        let file = put(disk, &a, b"new");
        let old = put(disk, &b, b"old");
        disk.rename(&a, &b).unwrap();
        assert_eq!(list(disk, dir), ["b"]);
        assert_eq!(read(disk, &b), b"new");
        let mut bytes = [0; 3];
        old.read_full_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"old");
        file.write_all_at(b"N", 0).unwrap();
        assert_eq!(read(disk, &b), b"New");
        disk.rename(&b, &b).unwrap();
        assert_eq!(read(disk, &b), b"New");
        fails(disk.rename(&a, &b), ErrorKind::NotFound);
        fails(disk.rename(&b, &dir.join("none/b")), ErrorKind::NotFound);
        disk.create_dir(&dir.join("sub")).unwrap();
        fails(disk.rename(&b, &dir.join("sub")), ErrorKind::IsADirectory);
        disk.rename(&b, &dir.join("sub/c")).unwrap();
        assert_eq!(list(disk, &dir.join("sub")), ["c"]);
    });
}

#[test]
fn open_files_outlive_their_name() {
    check(|disk, dir| {
        let path = dir.join("a");
        let file = put(disk, &path, b"abc");
        disk.remove(&path).unwrap();
        fails(disk.remove(&path), ErrorKind::NotFound);
        assert!(list(disk, dir).is_empty());
        put(disk, &path, b"other");
        file.write_all_at(b"d", 3).unwrap();
        file.sync().unwrap();
        let mut bytes = [0; 9];
        assert_eq!(file.read_full_at(&mut bytes, 0).unwrap(), 4);
        assert_eq!(&bytes[..4], b"abcd");
        assert_eq!(read(disk, &path), b"other");
        disk.create_dir(&dir.join("sub")).unwrap();
        fails(disk.remove(&dir.join("sub")), ErrorKind::IsADirectory);
    });
}

#[test]
fn a_lock_belongs_to_the_open_file() {
    check(|disk, dir| {
        let [a, b, c] = [0; 3].map(|_| open(disk, dir.join("a")));
        assert!(a.try_lock().unwrap());
        assert!(a.try_lock().unwrap());
        assert!(!b.try_lock().unwrap());
        assert!(!b.try_lock_shared().unwrap());
        a.unlock().unwrap();
        assert!(b.try_lock_shared().unwrap());
        assert!(c.try_lock_shared().unwrap());
        assert!(!a.try_lock().unwrap());
        drop(c);
        b.unlock().unwrap();
        b.unlock().unwrap();
        assert!(a.try_lock().unwrap());
        drop(a);
        b.lock().unwrap();
        let read_only = disk.open(&dir.join("a"), OpenMode::Read).unwrap();
        assert!(!read_only.try_lock().unwrap());
        drop(b);
        assert!(read_only.try_lock().unwrap());
    });
}

#[test]
fn a_lock_is_changed_by_giving_it_up_first() {
    check(|disk, dir| {
        let [a, b] = [0; 2].map(|_| open(disk, dir.join("a")));
        assert!(a.try_lock().unwrap());
        assert!(a.try_lock_shared().unwrap());
        assert!(b.try_lock_shared().unwrap());
        // Neither can get the exclusive lock, and the attempt lost the shared one.
        assert!(!a.try_lock().unwrap());
        assert!(b.try_lock().unwrap());
    });
}

#[test]
fn waiting_lock_is_granted() {
    check(|disk, dir| {
        let [a, b] = [0; 2].map(|_| open(disk, dir.join("a")));
        a.lock().unwrap();
        let (freed, sleeper) = (AtomicBool::new(false), SleepingThread::default());
        thread::scope(|scope| {
            let (freed, sleeper) = (&freed, &sleeper);
            let waiter = scope.spawn(move || {
                sleeper.set_current();
                b.lock().unwrap();
                freed.load(SeqCst)
            });
            sleeper.wait();
            freed.store(true, SeqCst);
            drop(a);
            assert!(waiter.join().unwrap());
        });
    });
}

#[test]
fn a_map_does_not_keep_the_lock() {
    check(|disk, dir| {
        let [a, b] = [0; 2].map(|_| open(disk, dir.join("a")));
        a.allocate(8192).unwrap();
        a.lock().unwrap();
        let _region = a.map(8192).unwrap();
        drop(a);
        assert!(b.try_lock().unwrap());
    });
}

#[test]
fn maps_of_a_file_are_the_same_memory() {
    const WAKE: u64 = FUTEX_BYTES as u64;
    check(|disk, dir| {
        let [a, b] = [0; 2].map(|_| open(disk, dir.join("a")));
        a.allocate(WAKE + 8192).unwrap();
        a.write_all_at(&[1, 0, 0, 0, 0, 0, 0, 2], WAKE).unwrap();
        let (one, two) = (a.map(WAKE + 8192).unwrap(), b.map(WAKE + 4096).unwrap());
        assert_eq!((one.len(), two.len()), (1024, 512));
        assert!(one.persists_after_exit());
        assert_eq!(one[0].load(Relaxed), 0x0200_0000_0000_0001);
        one[1].store(0x1122_3344_5566_7788, Relaxed);
        assert_eq!(two[1].load(Relaxed), 0x1122_3344_5566_7788);
        one.futex_word(5).store(17, Relaxed);
        assert_eq!(two.futex_word(5).load(Relaxed), 17);
        let mut bytes = [0; 4];
        a.read_full_at(&mut bytes, WAKE + 12).unwrap();
        assert_eq!(bytes, [0x44, 0x33, 0x22, 0x11]);
        b.write_all_at(&[0xff; 9], WAKE + 15).unwrap();
        assert_eq!(two[1].load(Relaxed), 0xff22_3344_5566_7788);
        assert_eq!(one[2].load(Relaxed), u64::MAX);
        // Stores are in the file even after it is unmapped.
        drop((one, two, a, b));
        assert_eq!(
            read(disk, dir.join("a"))[FUTEX_BYTES + 8..][..8],
            0xff22_3344_5566_7788_u64.to_le_bytes()
        );
        let file = open(disk, dir.join("a"));
        assert_eq!(file.map(WAKE + 8192).unwrap()[1023].load(Relaxed), 0);
        file.set_len(WAKE + 12).unwrap();
        file.set_len(WAKE + 16).unwrap();
        assert_eq!(file.map(WAKE + 16).unwrap()[1].load(Relaxed), 0x5566_7788);
    });
}

#[test]
fn waiters_are_woken_through_another_map() {
    check(|disk, dir| {
        let file = open(disk, dir.join("a"));
        file.allocate(8192).unwrap();
        let (one, two) = (file.map(8192).unwrap(), file.map(8192).unwrap());
        let sleeper = SleepingThread::default();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                sleeper.set_current();
                while one.futex_word(3).load(SeqCst) == 0 {
                    assert!(!one.wait(3, 0, Some(Duration::from_secs(60))));
                }
            });
            sleeper.wait();
            two.futex_word(3).store(1, SeqCst);
            two.wake(3, 1);
            waiter.join().unwrap();
        });
    });
}

#[test]
fn invalid_mappings_are_rejected() {
    check(|disk, dir| {
        let file = put(disk, dir.join("a"), &[0; 8192]);
        fails(file.map(8200), ErrorKind::UnexpectedEof);
        fails(file.map(4096), ErrorKind::InvalidInput);
        fails(file.map(8191), ErrorKind::InvalidInput);
        fails(file.map(u64::MAX - 7), ErrorKind::OutOfMemory);
    });
}

#[test]
fn a_disk_and_its_files_may_be_used_by_all_threads() {
    check(|disk, dir| {
        let file: Box<dyn File> = open(disk, dir.join("a"));
        thread::scope(|scope| {
            for n in 0..4_u8 {
                let file = &file;
                scope.spawn(move || {
                    for i in 0..50 {
                        file.write_all_at(&[n; 4], 16 * i + 4 * u64::from(n)).unwrap();
                        file.sync().unwrap();
                    }
                });
            }
        });
        let expected = (0..4_u8).flat_map(|n| [n; 4]).collect::<Vec<_>>().repeat(50);
        assert_eq!(read(disk, dir.join("a")), expected);
    });
}
