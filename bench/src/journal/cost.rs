//! Cost of work: wall time, CPU time of all threads, bytes written and stored.
//!
//! The counters are those of Linux; a counter that cannot be read yields no figure instead of 0.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::clock::{cpu_time_of_program, wall_time};

/// Unit of `stat` and of the block layer, independent of the device.
const SECTOR_BYTES: u64 = 512;

/// Cost of a number of messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalCost {
    pub(crate) messages: usize,
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    /// Bytes passed to `write` and related system calls, without mapped memory.
    pub(crate) written_bytes: Option<u64>,
    /// Disk space of the files at the end.
    pub(crate) stored_bytes: u64,
}

impl JournalCost {
    /// Measures `work`, which handles `messages` in this process and leaves its files in `dir`.
    pub(crate) fn measure(
        dir: &Path,
        messages: usize,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<JournalCost> {
        let (wall, cpu, written) = (wall_time(), cpu_time_of_program(), written_bytes());
        work()?;
        let (passed, cpu) = (wall_time() - wall, cpu_time_of_program() - cpu);
        let written_bytes = written_bytes().zip(written).map(|(after, before)| after - before);
        Ok(JournalCost {
            messages,
            wall: passed,
            cpu,
            written_bytes,
            stored_bytes: stored_bytes(dir)?,
        })
    }

    pub(crate) fn cpu_ns(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / self.messages as f64
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.messages as f64 / self.wall.as_secs_f64()
    }
}

/// Bytes that this process has passed to `write` and related system calls.
fn written_bytes() -> Option<u64> {
    let counters = fs::read_to_string("/proc/self/io").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
}

/// Disk space of all files of a directory: holes do not count, allocated blocks do.
pub(super) fn stored_bytes(dir: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        sum += match entry.file_type()?.is_dir() {
            true => stored_bytes(&entry.path())?,
            false => entry.metadata()?.blocks() * SECTOR_BYTES,
        };
    }
    Ok(sum)
}

/// The block device of a directory.
pub(crate) struct DiskDevice {
    statistics: String,
}

impl DiskDevice {
    /// `None` if the directory is on no device with statistics.
    pub(crate) fn for_dir(dir: &Path) -> Option<DiskDevice> {
        let device = fs::metadata(dir).ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let found = DiskDevice { statistics: format!("/sys/dev/block/{major}:{minor}/stat") };
        found.written_bytes().is_some().then_some(found)
    }

    /// Bytes that all programs have written to the device.
    pub(crate) fn written_bytes(&self) -> Option<u64> {
        // The seventh number is the number of sectors written (Linux,
        // Documentation/block/stat.rst).
        let numbers = fs::read_to_string(&self.statistics).ok()?;
        let sectors: u64 = numbers.split_whitespace().nth(6)?.parse().ok()?;
        Some(sectors * SECTOR_BYTES)
    }
}

/// Writes dirty pages to the device, so that they are not counted in the next measurement.
pub(crate) fn flush_page_cache(dir: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(fs::File::open(dir)?)?)
}

/// Type of the file system of a directory, from the list of mounts.
pub(crate) fn file_system(dir: &Path) -> Option<String> {
    let device = fs::metadata(dir).ok()?.dev();
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // Fields: id, parent, major:minor, root, mount point, …, “-”, type, source, options.
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&number))?;
    Some(mount.split_once(" - ")?.1.split(' ').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_take_no_storage() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("full"), vec![1; 1 << 16]).unwrap();
        let sparse = fs::File::create(dir.path().join("sparse")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        let stored = stored_bytes(dir.path()).unwrap();
        assert!((1 << 16..1 << 20).contains(&stored), "{stored}");
    }

    #[test]
    fn work_of_other_threads_counts() {
        let dir = tempfile::tempdir().unwrap();
        let spin = || {
            let until = cpu_time_of_program() + Duration::from_millis(20);
            while cpu_time_of_program() < until {}
        };
        let cost = JournalCost::measure(dir.path(), 1, || {
            std::thread::spawn(spin).join().expect("no panic");
            Ok(())
        });
        assert!(cost.unwrap().cpu >= Duration::from_millis(20));
    }
}
