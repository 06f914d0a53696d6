//! A tmpfs directory for a test, removed at the end. Tests of other crates use it too.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

#[path = "room.rs"]
pub(crate) mod room;

/// The directory.
pub(crate) struct TestDir(pub(crate) PathBuf);

impl TestDir {
    /// `None`, with a message, if there is no tmpfs. Scanners find directories below `/dev/shm`
    /// with the prefix `topdeck-`.
    pub(crate) fn new() -> Option<TestDir> {
        if !room::has_space() {
            return None;
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path =
                PathBuf::from(format!("/dev/shm/topdeck-it-{}-{number}", std::process::id()));
            // Independent of the umask: a directory writable by others is refused.
            match DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => return Some(TestDir(path)),
                // Left by another process with the same PID.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    println!("skipped: there is no tmpfs at /dev/shm: {error}");
                    return None;
                }
            }
        }
    }

    /// Files in the directory by name.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
        files.sort();
        files
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
