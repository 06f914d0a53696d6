//! `topdeck doctor readers`: cost of several readers of the process table.
//!
//! topdeck reads the process table once and publishes it in memory; each reader copies it from
//! there. With `ps` each reader reads all of `/proc`. CPU time includes user and system time.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use host::ProcessCollector;
use rustix::time::{ClockId, clock_gettime};
use shm::process_table::{CollectionInfo, TableWriter, read};

use crate::command::{print_message, print_stdout};

/// Measure the cost of several readers of the process table, with topdeck and with ps
///
/// Reads the process table and publishes it, lets each reader read the published table, and starts
/// ps once per reader. Prints the CPU time of both.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Concurrent readers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    readers: u32,

    /// Samples per reader
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,
}

const AFTER: &str = "\
Examples:
  topdeck doctor readers
  topdeck doctor readers --readers 1

Exit status:
  0  success
  1  something could not be measured; the reason is printed
  2  usage error";

/// Folder in memory, removed on drop.
struct MemoryDir(PathBuf);

impl Drop for MemoryDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut processes = ProcessCollector::new();
    if let Some(note) = processes.fallback_reason() {
        print_message(format_args!("{note}"));
    }
    processes.read().context("cannot read the process table")?;
    let count = processes.rows().len();
    let ours = measure_published(options, &mut processes)?;
    let samples = u64::from(options.readers) * u64::from(options.samples);
    let readers = options.readers;
    let mut lines = format!(
        "{count} processes, {readers} readers, {} samples each; total CPU time, user and \
         system\n\n",
        options.samples
    );
    lines += &format!("  topdeck, one reads, {readers} copy      {}\n", cost_text(ours, samples));
    let status = match measure_ps(options) {
        Ok(theirs) => {
            lines += &format!(
                "  ps auxww, {readers} read                {}\n\n",
                cost_text(theirs, samples)
            );
            let times = theirs.as_secs_f64() / ours.as_secs_f64().max(1e-9);
            lines += &format!("topdeck uses {times:.0} times less CPU time.\n");
            ExitCode::SUCCESS
        }
        Err(error) => {
            lines += &format!("  ps auxww: not measured: {error:#}\n");
            ExitCode::FAILURE
        }
    };
    print_stdout(lines.as_bytes())?;
    Ok(status)
}

fn cost_text(spent: Duration, samples: u64) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    format!("{:10.3} ms, {:8.4} ms a sample", ms(spent), ms(spent) / samples as f64)
}

/// CPU time of the publisher and of all readers.
fn measure_published(options: &Options, processes: &mut ProcessCollector) -> Result<Duration> {
    let folder =
        MemoryDir(PathBuf::from(format!("/dev/shm/topdeck-doctor-{}", std::process::id())));
    std::fs::create_dir(&folder.0).with_context(|| format!("making {}", folder.0.display()))?;
    let mut writer = TableWriter::new(&folder.0)?;
    let path = writer.path().to_owned();
    let ticks_per_second = ProcessCollector::ticks_per_second();
    let before = thread_cpu_time();
    for _ in 0..options.samples {
        processes.read().context("cannot read the process table")?;
        let collection = CollectionInfo {
            started_ns: clock::now(),
            unix_ns: clock::wall().unix_ns,
            method: processes.method(),
            ticks_per_second,
        };
        writer.publish(&collection, processes.rows())?;
        for _ in 0..options.readers {
            read_table(&path, processes.rows().len())?;
        }
    }
    Ok(thread_cpu_time() - before)
}

fn read_table(path: &Path, count: usize) -> Result<()> {
    let table = read(path)?;
    if table.processes.len() != count {
        bail!("{} has {} processes, not {count}", path.display(), table.processes.len());
    }
    Ok(())
}

/// CPU time of this thread.
fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// CPU time of the same number of `ps` runs, with one concurrent `ps` per reader.
fn measure_ps(options: &Options) -> Result<Duration> {
    let before = children_cpu_time()?;
    for _ in 0..options.samples {
        let children = (0..options.readers).map(|_| {
            let mut ps = Command::new("ps");
            ps.arg("auxww").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            ps.spawn().context("cannot start ps (Debian package procps)")
        });
        // All started processes are waited for, even if one could not be started.
        let children: Vec<_> = children.collect();
        for child in children {
            let status = child?.wait().context("cannot wait for ps")?;
            if !status.success() {
                bail!("ps exited with {status}");
            }
        }
    }
    Ok(children_cpu_time()?.saturating_sub(before))
}

/// CPU time of exited children, with a resolution of 10 ms: fields 16 and 17 of /proc/self/stat.
fn children_cpu_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    let after_name = stat.rsplit_once(')').context("/proc/self/stat has no process name")?.1;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let ticks = |field: usize| -> Result<u64> {
        let text = fields.get(field - 3).context("/proc/self/stat has too few fields")?;
        text.parse().with_context(|| format!("/proc/self/stat has an invalid time {text:?}"))
    };
    let ticks = ticks(16)? + ticks(17)?;
    Ok(Duration::from_secs_f64(
        ticks as f64 / f64::from(ProcessCollector::ticks_per_second().max(1)),
    ))
}
