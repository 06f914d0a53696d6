//! Kill -9: nothing is lost, and locks are released.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use disk::{Disk, FUTEX_BYTES, File, OpenMode};
use sim::{SimDisk, SimProcess};

use crate::{SleepingThread, open, put, read};

#[test]
fn killed_process_keeps_writes_and_releases_locks() {
    let disk = SimDisk::new(1);
    let (victim, other) = (disk.process(), disk.process());
    let file = put(&victim, "/a", &[7; 8192]);
    let region = file.map(8192).unwrap();
    region[0].store(1, Relaxed);
    assert!(file.try_lock().unwrap());
    let theirs = open(&other, "/a");
    assert!(!theirs.try_lock_shared().unwrap());
    victim.kill();
    assert!(victim.is_dead() && !other.is_dead());
    assert!(theirs.try_lock().unwrap());
    assert_eq!(theirs.map(8192).unwrap()[0].load(Relaxed), 1);
    assert_eq!(read(&other, "/a")[FUTEX_BYTES + 8..], [7; 4088]);
    // All further operations fail, and dropped files are not closed twice.
    let path = Path::new("/a");
    let tried = [
        file.read_at(&mut [0], 0).map(drop),
        file.write_at(b"x", 0).map(drop),
        file.len().map(drop),
        file.set_len(0),
        file.allocate(9),
        file.sync(),
        file.lock(),
        file.try_lock().map(drop),
        file.try_lock_shared().map(drop),
        file.unlock(),
        file.map(8192).map(drop),
        victim.open(path, OpenMode::Read).map(drop),
        victim.create_dir(Path::new("/x")),
        victim.list(Path::new("/")).map(drop),
        victim.rename(path, Path::new("/b")),
        victim.remove(path),
        victim.sync_dir(Path::new("/")),
    ];
    for (index, result) in tried.into_iter().enumerate() {
        assert_eq!(result.unwrap_err().to_string(), "killed", "{index}");
    }
    drop(file);
    assert!(!open(&other, "/a").try_lock().unwrap());
}

#[test]
fn kill_releases_lock_to_waiter() {
    check_waiter(|_, victim, _| victim.kill(), None);
    let in_an_operation = |_: &SimDisk, victim: &SimProcess, file: &dyn File| {
        victim.kill_after(0);
        file.write_at(b"x", 0).unwrap_err();
    };
    check_waiter(in_an_operation, None);
}

#[test]
fn power_cut_fails_lock_waiter() {
    check_waiter(|disk, _, _| disk.power_cut(), Some("killed"));
    let in_an_operation = |disk: &SimDisk, _: &SimProcess, file: &dyn File| {
        disk.cut_after(0);
        file.write_at(b"x", 0).unwrap_err();
    };
    check_waiter(in_an_operation, Some("simulated power loss"));
}

/// Result of waiting for a lock when `act` affects its holder.
#[track_caller]
fn check_waiter(act: impl Fn(&SimDisk, &SimProcess, &dyn File), error: Option<&str>) {
    let disk = SimDisk::new(1);
    let (victim, other) = (disk.process(), disk.process());
    let (ours, theirs) = (open(&victim, "/a"), open(&other, "/a"));
    ours.lock().unwrap();
    let sleeper = SleepingThread::default();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            sleeper.set_current();
            theirs.lock()
        });
        sleeper.wait();
        act(&disk, &victim, &*ours);
        let got = waiter.join().unwrap().map_err(|error| error.to_string());
        assert_eq!(got.err().as_deref(), error);
    });
}

#[test]
fn lock_waiter_can_be_killed() {
    let disk = SimDisk::new(1);
    let (victim, other) = (disk.process(), disk.process());
    let (ours, theirs) = (open(&other, "/a"), open(&victim, "/a"));
    ours.lock().unwrap();
    let sleeper = SleepingThread::default();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            sleeper.set_current();
            theirs.lock()
        });
        sleeper.wait();
        victim.kill();
        assert!(waiter.join().unwrap().is_err());
    });
}

#[test]
fn kill_interrupts_an_operation() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let (victim, other) = (disk.process(), disk.process());
        let file = put(&victim, "/a", b"....");
        assert!(file.try_lock().unwrap());
        victim.kill_after(1);
        put(&other, "/b", b"does not count");
        file.set_len(4).unwrap();
        let count = victim.operations();
        assert_eq!(file.write_at(b"xxxx", 0).unwrap_err().to_string(), "killed");
        assert!(victim.is_dead());
        assert_eq!(victim.operations(), count);
        assert!(open(&other, "/a").try_lock().unwrap());
        seen.insert(String::from_utf8(read(&other, "/a")).unwrap());
    }
    let expected = ["....", "x...", "xx..", "xxx.", "xxxx"].map(str::to_owned);
    assert_eq!(seen, BTreeSet::from(expected));
}

#[test]
fn killed_operation_is_atomic() {
    type IoCall = fn(&dyn Disk, &dyn File) -> std::io::Result<()>;
    let acts: [IoCall; 6] = [
        |_, file| file.set_len(1),
        |_, file| file.allocate(9),
        |disk, _| disk.rename(Path::new("/a"), Path::new("/b")),
        |disk, _| disk.remove(Path::new("/a")),
        |disk, _| disk.open(Path::new("/b"), OpenMode::Create).map(drop),
        |disk, _| disk.rename(Path::new("/b"), Path::new("/a")).or(disk.remove(Path::new("/a"))),
    ];
    for (index, act) in acts.into_iter().enumerate() {
        let after = |seed| {
            let disk = SimDisk::new(seed);
            let victim = disk.process();
            let file = put(&victim, "/a", b"....");
            victim.kill_after(0);
            act(&victim, &*file).unwrap_err();
            assert!(victim.is_dead());
            disk.files()
        };
        assert_eq!((0..50).map(after).collect::<BTreeSet<_>>().len(), 2, "{index}");
    }
}

#[test]
fn a_dead_process_does_not_keep_a_file_mapped() {
    let disk = SimDisk::new(1);
    let victim = disk.process();
    let file = put(&victim, "/a", &[7; 8192]);
    let region = file.map(8192).unwrap();
    victim.kill();
    let next = disk.process();
    open(&next, "/a").set_len(0).unwrap();
    open(&next, "/a").allocate(16_384).unwrap();
    assert_eq!(open(&next, "/a").map(16_384).unwrap()[0].load(Relaxed), 0);
    drop(region);
}

#[test]
#[should_panic(expected = "is truncated to 8184 bytes while 8192 are mapped")]
fn truncating_a_mapped_file_panics() {
    let disk = SimDisk::new(1).process();
    let file = put(&disk, "/a", &[7; 9000]);
    let _region = file.map(8192).unwrap();
    file.set_len(8192).unwrap();
    let _ = file.set_len(8184);
}
