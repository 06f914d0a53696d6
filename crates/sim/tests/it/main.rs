//! Tests of the crate's interface: one suite for the real and the simulated disk, and tests of
//! simulation-only features.

mod differential;
mod equivalence;
mod faults;
mod power_loss;
mod processes;
mod space;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use disk::{Disk, File, OpenMode};

/// A directory of the real disk, removed at the end.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("topdeck-disk-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                // Left by another process with the same id.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|()| TempDir(path)).unwrap(),
            }
        }
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A thread that is about to wait: others continue once it sleeps.
#[derive(Default)]
struct SleepingThread(AtomicU32);

impl SleepingThread {
    /// Sets the calling thread.
    fn set_current(&self) {
        self.0.store(
            rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned(),
            Ordering::SeqCst,
        );
    }

    /// Waits until the thread sleeps, at most a minute.
    fn wait(&self) {
        for _ in 0..60_000 {
            let tid = self.0.load(Ordering::SeqCst);
            let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat"));
            let stat = stat.unwrap_or_default();
            if stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the other thread does not wait");
    }
}

/// Opens or creates a file.
#[track_caller]
fn open(disk: &dyn Disk, path: impl AsRef<Path>) -> Box<dyn File> {
    disk.open(path.as_ref(), OpenMode::Create).unwrap()
}

/// Creates a file with these bytes, not synced.
#[track_caller]
fn put(disk: &dyn Disk, path: impl AsRef<Path>, bytes: &[u8]) -> Box<dyn File> {
    let file = open(disk, path);
    file.write_all_at(bytes, 0).unwrap();
    file
}

/// All contents of a file.
#[track_caller]
fn read(disk: &dyn Disk, path: impl AsRef<Path>) -> Vec<u8> {
    let file = disk.open(path.as_ref(), OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_full_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}
