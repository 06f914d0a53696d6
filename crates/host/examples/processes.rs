//! Cost of reading all processes:
//! `cargo run --release -p topdeck-host --example processes [WAY [SCRAPES]]`.
//!
//! WAY is `bpf`, `procfs` or `both`. Count system calls with `strace -c -f`, once with 1 scrape
//! and once with 101: the difference is that of 100.
#![forbid(unsafe_code)]

use std::time::Instant;

use host::ProcessCollector;
use rustix::time::{ClockId, clock_gettime};
use shm::process_table::{CollectionInfo, TableWriter, read};

/// CPU time of this thread in nanoseconds.
fn cpu_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let way = arguments.next().unwrap_or_else(|| "both".to_owned());
    let scrapes = arguments.next().map_or(100, |text| text.parse::<usize>().expect("scrapes"));
    for name in ["bpf", "procfs"].into_iter().filter(|name| way == "both" || way == *name) {
        let mut processes =
            if name == "bpf" { ProcessCollector::new() } else { ProcessCollector::from_procfs() };
        processes.fallback_reason().iter().for_each(|note| println!("{name}: {note}"));
        let mut costs = Vec::new();
        let began = Instant::now();
        for _ in 0..scrapes.max(1) {
            let before = cpu_time_ns();
            processes.read().expect("processes");
            costs.push(cpu_time_ns() - before);
        }
        let (took, count) = (began.elapsed() / costs.len() as u32, processes.rows().len());
        let threads: u32 = processes.rows().iter().map(|row| row.threads).sum();
        costs.sort_unstable();
        let (least, median) = (costs[0], costs[costs.len() / 2]);
        println!(
            "{name} ({:?}): {count} processes, {threads} threads; processor time of a scrape: \
             median {median} ns, least {least} ns, {} ns a process; it takes {took:?}",
            processes.method(),
            median / count as u64,
        );
        publish(&processes, scrapes.max(1));
    }
}

/// Cost of publishing these processes, and of a viewer.
fn publish(processes: &ProcessCollector, scrapes: usize) {
    let dir = std::path::PathBuf::from(format!("/dev/shm/topdeck-cost-{}", std::process::id()));
    std::fs::create_dir(&dir).expect("a directory on a tmpfs");
    let mut writer = TableWriter::new(&dir).expect("a writer");
    let ticks_per_second = ProcessCollector::ticks_per_second();
    let taken =
        CollectionInfo { started_ns: 0, unix_ns: 0, method: processes.method(), ticks_per_second };
    let [mut publishing, mut viewing] = [const { Vec::new() }; 2];
    for _ in 0..scrapes {
        let before = cpu_time_ns();
        writer.publish(&taken, processes.rows()).expect("room");
        let between = cpu_time_ns();
        let table = read(writer.path()).expect("a table");
        assert_eq!(table.processes, processes.rows());
        publishing.push(between - before);
        viewing.push(cpu_time_ns() - between);
    }
    drop(writer);
    let _ = std::fs::remove_dir_all(&dir);
    let median = |mut costs: Vec<u64>| {
        costs.sort_unstable();
        costs[costs.len() / 2]
    };
    println!("  publishing: {} ns; a viewer: {} ns", median(publishing), median(viewing));
}
