//! What `shm` looks at from outside: this program once more, recording or reading.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use shm::show::{Number, Value};

/// Records so often on each of two threads, or until killed.
pub(crate) fn record(count: u64) -> Result<()> {
    let begun = shm::Description::new("bench_begun_total").counter()?;
    let done = shm::Description::new("bench_done_total").counter()?;
    let took = shm::Description::new("bench_child").histogram()?;
    // Both are there at once, whatever the count: one that ends before the other begins would leave it its lane.
    let both = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // The first touch of a bucket asks for room: all are touched, whatever comes.
                (0..64).for_each(|shift| {
                    begun.add(1);
                    took.record(1 << shift);
                    done.add(1);
                });
                both.wait();
                for value in 0..if count == 0 { u64::MAX } else { count } {
                    begun.add(1);
                    took.record(value % 1_000_000);
                    done.add(1);
                }
            });
        }
    });
    Ok(())
}

/// Reads a thousand counters of its own so often.
pub(crate) fn read(count: u64) -> Result<()> {
    for n in 0..1_000 {
        shm::Description::new(format!("bench_read_{n}")).counter()?.add(1);
    }
    let mut reader = shm::Reader::attach(&shm::status()?)?;
    let mut counts = vec![0; reader.len()];
    for _ in 0..count {
        reader.refresh()?;
        reader.counts(&mut counts)?;
    }
    Ok(())
}

/// What a counter and a histogram of a file have counted.
pub(crate) fn seen(path: &Path, counter: &str, histogram: &str) -> Result<(u64, u64)> {
    let metrics = shm::Reader::attach(path)?.metrics()?;
    let value = |name: &str| metrics.iter().find(|one| one.name == name).map(|one| &one.value);
    match (value(counter), value(histogram)) {
        (Some(Value::Counter(Number::Unsigned(count))), Some(Value::Histogram(seen))) => {
            Ok((*count, seen.count()))
        }
        _ => bail!("no {counter} or {histogram} in {}", path.display()),
    }
}

/// How many system calls this program makes when it is asked to do this, as strace counts them.
pub(crate) fn calls(arguments: &[&str]) -> Option<u64> {
    let file = tempfile::NamedTempFile::new().ok()?;
    // A folder of its own: what others left behind is looked at when a file is made.
    let folder = tempfile::Builder::new().prefix("topdeck-bench-").tempdir_in("/dev/shm").ok()?;
    let status = Command::new("strace")
        .args(["-f", "-c", "-S", "calls", "-o"])
        .arg(file.path())
        .arg(std::env::current_exe().ok()?)
        .args(arguments)
        .env(shm::VARIABLE, folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return None;
    }
    let table = std::fs::read_to_string(file.path()).ok()?;
    // Waiting for a processor and for time is not what is counted: the clock's thread wakes once a second.
    let rows = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = *words.last()?;
        let is_call = words.len() >= 5 && words[0].parse::<f64>().is_ok() && name != "total";
        let is_clock =
            ["poll", "ppoll", "read", "futex", "clock_gettime", "adjtimex", "restart_syscall"];
        (is_call && !is_clock.contains(&name)).then(|| words[3].parse::<u64>().ok()).flatten()
    });
    Some(rows.sum())
}

/// A process of one thread that has so many counters and waits.
pub(crate) struct Counting {
    process: Child,
    pub(crate) path: PathBuf,
}

impl Counting {
    pub(crate) fn start(counters: usize) -> Option<Counting> {
        let program = std::env::current_exe().ok()?;
        let mut process = Command::new(program)
            .args(["--hold-shm", &counters.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(20));
            let (found, _) = shm::processes();
            let found = found.into_iter().find(|one| one.identity.pid == process.id());
            let ready = found.filter(|one| {
                shm::Reader::attach(&one.path).is_ok_and(|reader| reader.len() == counters)
            });
            if let Some(found) = ready {
                return Some(Counting { process, path: found.path });
            }
        }
        let _ = process.kill();
        let _ = process.wait();
        None
    }
}

/// Holds so many counters until its input ends.
pub(crate) fn hold(counters: usize) -> Result<()> {
    for n in 0..counters {
        shm::Description::new(format!("bench_read_{n}")).counter()?.add(1);
    }
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
