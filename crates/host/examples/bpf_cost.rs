//! What telling about this host costs: `cargo run --release -p topdeck-host --example bpf_cost [SECONDS]`.
//!
//! Runs each part for some seconds with an interval of one second and prints the processor time of this process, of
//! the threads, and the memory. Programs in the kernel are measured by the kernel (`sysctl kernel.bpf_stats_enabled=1`)
//! and told in the rows `host_bpf_*`.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use host::{HostCollector, Settings};
use intake::{Intake, WriteTarget};
use journal::{Journal, Options};

/// Nanoseconds of processor time of this process.
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
    let nothing = Settings {
        host: "box".to_owned(),
        procfs: false,
        block_io: false,
        run_queue: false,
        processes: false,
        folder: None,
        hiccup_interval: None,
        shm_interval: None,
    };
    let hiccup =
        |us| Settings { hiccup_interval: Some(Duration::from_micros(us)), ..nothing.clone() };
    let parts = [
        ("nothing", nothing.clone()),
        ("procfs", Settings { procfs: true, ..nothing.clone() }),
        ("block_io", Settings { block_io: true, ..nothing.clone() }),
        ("run_queue", Settings { run_queue: true, ..nothing.clone() }),
        ("processes", Settings { processes: true, ..nothing.clone() }),
        ("hiccup 1 ms", hiccup(1_000)),
        ("hiccup 5 ms", hiccup(5_000)),
        ("hiccup 10 ms", hiccup(10_000)),
        ("programs", Settings { shm_interval: Some(Duration::from_secs(1)), ..nothing.clone() }),
        ("all", Settings::for_host("box")),
    ];
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
