//! A server process: started, measured through `/proc`, and stopped.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::clock::wall_time;

/// Unit of CPU time in `/proc`, independent of the kernel's own (Linux, `USER_HZ`).
const TICK: Duration = Duration::from_millis(10);
/// A server is idle if it uses less than this share of one CPU over this interval.
const IDLE_SHARE: f64 = 0.05;
const IDLE_WINDOW: Duration = Duration::from_secs(3);
/// Maximum wait until the server is idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(180);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A running server, killed on drop.
pub(crate) struct PeerServer {
    child: Child,
}

impl PeerServer {
    /// Starts a program whose output goes to `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<PeerServer> {
        let file = fs::File::create(log).context("creating a log")?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().context("starting the server")?;
        Ok(PeerServer { child })
    }

    /// Fails if the process has exited.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the server exited: {status}"),
        }
    }

    /// Whether the process has ended, which is an error unless it was successful.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        match self.child.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => bail!("the program failed: {status}"),
        }
    }

    /// CPU time of all its threads so far, user and system.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stat = self.file("stat")?;
        // The name may contain anything; after its parenthesis follow the state and numbers; utime
        // is the 12th.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: Vec<u32> =
            fields.skip(11).take(2).filter_map(|text| text.parse().ok()).collect();
        let [user, system] = ticks[..] else { bail!("no CPU time in {stat}") };
        Ok(TICK * (user + system))
    }

    /// CPU time of all its threads so far, finished ones included: [`Self::cpu`] without rounding
    /// to 10 ms.
    pub(crate) fn cpu_clock(&self) -> Result<Duration> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id())?);
        let clock = nix::time::clock_getcpuclockid(pid).context("no CPU clock of the server")?;
        Ok(nix::time::clock_gettime(clock)?.into())
    }

    /// CPU time of each of its threads so far, in nanoseconds; empty if the system does not report
    /// it. Unlike [`Self::cpu`], it excludes finished threads.
    pub(crate) fn threads(&self) -> ThreadTimes {
        let Ok(entries) = fs::read_dir(self.path("task")) else { return ThreadTimes::default() };
        let used = |entry: fs::DirEntry| {
            let statistics = fs::read_to_string(entry.path().join("schedstat")).ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, statistics.split_whitespace().next()?.parse().ok()?))
        };
        ThreadTimes(entries.flatten().filter_map(used).collect())
    }

    /// Bytes that it caused to be written to the device.
    pub(crate) fn written_bytes(&self) -> Option<u64> {
        let counters = self.file("io").ok()?;
        counters.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
    }

    /// Peak resident size since the start, or since [`Self::forget_memory`].
    pub(crate) fn memory_bytes(&self) -> Result<u64> {
        self.status("VmHWM")
    }

    /// Current resident size.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        self.status("VmRSS")
    }

    /// Resident file pages, mainly of the program itself, which the kernel can drop and read again.
    pub(crate) fn resident_file_bytes(&self) -> Result<u64> {
        self.status("RssFile")
    }

    fn status(&self, name: &str) -> Result<u64> {
        let status = self.file("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        Ok(kib.with_context(|| format!("no {name} in /proc"))? * 1024)
    }

    /// Resets the peak resident size to the current size.
    pub(crate) fn forget_memory(&self) {
        // Without permission the figure is too high.
        let _ = fs::write(self.path("clear_refs"), "5");
    }

    /// Waits until it is idle.
    pub(crate) fn wait_until_idle(&mut self) -> Result<()> {
        let until = wall_time() + IDLE_TIMEOUT;
        loop {
            let (began, before) = (wall_time(), self.cpu()?);
            std::thread::sleep(IDLE_WINDOW);
            self.check_alive()?;
            let used = self.cpu()? - before;
            let passed = wall_time() - began;
            if used.as_secs_f64() < IDLE_SHARE * passed.as_secs_f64() || wall_time() > until {
                return Ok(());
            }
        }
    }

    /// Sends SIGTERM and waits for the exit.
    pub(crate) fn stop(self) -> Result<()> {
        self.stop_and_count().map(drop)
    }

    /// The same; returns the bytes that it caused to be written to the device in its life, also
    /// during the stop.
    pub(crate) fn stop_and_count(mut self) -> Result<Option<u64>> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM)?;
        let until = wall_time() + STOP_TIMEOUT;
        let mut written = None;
        while wall_time() < until {
            written = self.written_bytes().or(written);
            if self.child.try_wait()?.is_some() {
                return Ok(written);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the server did not stop")
    }

    fn path(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.child.id())
    }

    fn file(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        fs::read_to_string(&path).with_context(|| format!("reading {path}"))
    }
}

/// CPU time by thread.
#[derive(Default)]
pub(crate) struct ThreadTimes(BTreeMap<u32, u64>);

impl ThreadTimes {
    /// CPU time since `earlier`, except for the last part of finished threads; `None` if unknown.
    pub(crate) fn since(&self, earlier: &ThreadTimes) -> Option<Duration> {
        let used = |(thread, ns): (&u32, &u64)| {
            // A reused thread ID starts at 0.
            let before = earlier.0.get(thread).filter(|before| *before <= ns);
            ns - before.copied().unwrap_or_default()
        };
        (!self.0.is_empty()).then(|| Duration::from_nanos(self.0.iter().map(used).sum()))
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn started_and_ended_threads_are_accounted_for() {
        let before = ThreadTimes([(1, 100), (2, 50), (3, 70)].into());
        let after = ThreadTimes([(1, 130), (3, 20), (4, 5)].into());
        assert_eq!(after.since(&before), Some(Duration::from_nanos(30 + 20 + 5)));
        assert_eq!(ThreadTimes::default().since(&before), None);
    }

    #[test]
    fn a_program_is_watched_and_stopped() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut server =
            PeerServer::start(Command::new("sleep").arg("100"), log.path()).expect("sleep starts");
        assert!(server.cpu().unwrap() < Duration::from_secs(1));
        assert!(server.cpu_clock().unwrap() < Duration::from_secs(1));
        assert!(server.memory_bytes().unwrap() > 0);
        let threads = server.threads();
        assert!(server.threads().since(&threads).is_none_or(|used| used < Duration::from_secs(1)));
        server.check_alive().unwrap();
        server.stop().unwrap();
    }
}
