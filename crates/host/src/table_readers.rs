//! Cost of several readers of the process table: each copies the published table, or runs `ps`.
//!
//! CPU time includes user and system time.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use shm::process_table::{CollectionInfo, TableWriter, read};

use crate::processes::ProcessCollector;

/// Directory in memory, removed on drop.
struct MemoryDir(PathBuf);

impl Drop for MemoryDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// CPU time of the publisher and of all readers.
pub fn measure_published(
    readers: u32,
    samples: u32,
    processes: &mut ProcessCollector,
) -> io::Result<Duration> {
    let dir = MemoryDir(PathBuf::from(format!("/dev/shm/topdeck-doctor-{}", std::process::id())));
    std::fs::create_dir(&dir.0)
        .map_err(|error| with_subject(error, &format!("making {}", dir.0.display())))?;
    let mut writer = TableWriter::new(&dir.0).map_err(io::Error::other)?;
    let path = writer.path().to_owned();
    let ticks_per_second = ProcessCollector::ticks_per_second();
    let before = thread_cpu_time();
    for _ in 0..samples {
        processes.read()?;
        let collection = CollectionInfo {
            started_ns: clock::now(),
            unix_ns: clock::wall().unix_ns,
            method: processes.method(),
            ticks_per_second,
        };
        writer.publish(&collection, processes.rows()).map_err(io::Error::other)?;
        for _ in 0..readers {
            read_table(&path, processes.rows().len())?;
        }
    }
    Ok(thread_cpu_time() - before)
}

fn read_table(path: &Path, count: usize) -> io::Result<()> {
    let table = read(path).map_err(io::Error::other)?;
    if table.processes.len() != count {
        let found = table.processes.len();
        return Err(io::Error::other(format!(
            "{} has {found} processes, not {count}",
            path.display()
        )));
    }
    Ok(())
}

/// CPU time of this thread.
fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// CPU time of the same number of `ps` runs, with one concurrent `ps` per reader.
pub fn measure_ps(readers: u32, samples: u32) -> io::Result<Duration> {
    let before = children_cpu_time()?;
    for _ in 0..samples {
        let children = (0..readers).map(|_| {
            let mut ps = Command::new("ps");
            ps.arg("auxww").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            ps.spawn()
                .map_err(|error| with_subject(error, "cannot start ps (Debian package procps)"))
        });
        // All started processes are waited for, even if one could not be started.
        let children: Vec<_> = children.collect();
        for child in children {
            let status =
                child?.wait().map_err(|error| with_subject(error, "cannot wait for ps"))?;
            if !status.success() {
                return Err(io::Error::other(format!("ps exited with {status}")));
            }
        }
    }
    Ok(children_cpu_time()?.saturating_sub(before))
}

/// CPU time of exited children, with a resolution of 10 ms: fields 16 and 17 of /proc/self/stat.
fn children_cpu_time() -> io::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")
        .map_err(|error| with_subject(error, "cannot read /proc/self/stat"))?;
    let after_name = stat.rsplit_once(')').ok_or_else(|| invalid_stat("no process name"))?.1;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let ticks = |field: usize| -> io::Result<u64> {
        let text = fields.get(field - 3).ok_or_else(|| invalid_stat("too few fields"))?;
        text.parse().map_err(|_| invalid_stat(&format!("an invalid time {text:?}")))
    };
    let ticks = ticks(16)? + ticks(17)?;
    Ok(Duration::from_secs_f64(
        ticks as f64 / f64::from(ProcessCollector::ticks_per_second().max(1)),
    ))
}

fn with_subject(error: io::Error, subject: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{subject}: {error}"))
}

fn invalid_stat(found: &str) -> io::Error {
    io::Error::other(format!("/proc/self/stat has {found}"))
}
