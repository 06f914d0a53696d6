//! Cost of host metrics: `cargo run --release -p topdeck-host --example bpf_cost [SECONDS]`.
//!
//! Runs each source for some seconds with an interval of one second and prints the CPU time of this
//! process and its threads, and the memory. The kernel measures BPF programs
//! (`sysctl kernel.bpf_stats_enabled=1`); their cost is in the rows `host_bpf_*`.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use host::{HostCollector, Settings};
use intake::{Intake, WriteTarget};
use journal::{Journal, Options};

/// CPU time of this process in nanoseconds.
fn cpu_time_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let of = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    tasks.filter_map(|task| of(task.ok()?)).sum()
}

fn memory() -> String {
    let text = std::fs::read_to_string("/proc/self/status").expect("status");
    let lines =
        text.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("RssAnon"));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Only the sources with these keys of `[host]`.
fn only(keys: &str) -> Settings {
    let sources = ["procfs", "block_io", "run_queue", "processes", "hiccup", "shm_metrics"];
    let others = sources.iter().filter(|source| !keys.contains(*source));
    let off: String = others.map(|source| format!("{source} = false\n")).collect();
    Settings::with_keys("box", &format!("{keys}\n{off}")).expect("settings")
}

fn main() {
    let seconds = std::env::args().nth(1).map_or(5, |text| text.parse().expect("seconds"));
    let dir = std::env::temp_dir().join(format!("host-cost-{}", std::process::id()));
    let disk: Arc<dyn disk::Disk> = Arc::new(disk::OsDisk);
    Journal::create(&*disk, &dir, journal::random_id(), 0, &journal::Settings::default())
        .expect("journal");
    let journal = Arc::new(Journal::open(disk, &dir, &Options::default()).expect("journal"));
    let settings =
        intake::Settings { interval: Duration::from_secs(1), ..intake::Settings::default() };
    let intake = Arc::new(Intake::new(WriteTarget::Journal(journal), settings).expect("intake"));
    let parts = [
        ("nothing", ""),
        ("procfs", "procfs = true"),
        ("block_io", "block_io = true"),
        ("run_queue", "run_queue = true"),
        ("processes", "processes = true"),
        ("hiccup 1 ms", "hiccup_interval = '1ms'"),
        ("hiccup 5 ms", "hiccup_interval = '5ms'"),
        ("hiccup 10 ms", "hiccup = true"),
        ("shm_metrics", "shm_metrics = true"),
    ];
    let mut parts: Vec<_> = parts.map(|(name, keys)| (name, only(keys))).into();
    parts.push(("all", Settings::for_host("box")));
    for (name, settings) in parts {
        let host = HostCollector::start(settings, Arc::clone(&intake)).expect("host");
        host.warnings().iter().for_each(|note| println!("{note}"));
        let before = cpu_time_ns();
        std::thread::sleep(Duration::from_secs(seconds));
        let used = (cpu_time_ns() - before) as f64 / (seconds as f64 * 1e9) * 100.0;
        println!("{name}: {used:.3} % of a processor, {}", memory());
        host.stop().expect("stop");
    }
    drop(intake);
    let _ = std::fs::remove_dir_all(&dir);
}
