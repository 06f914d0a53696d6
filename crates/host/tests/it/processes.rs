//! Processes read by both methods and published: the methods agree with each other and with the
//! known state of a child.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use host::ProcessCollector;
use shm::process_table::{CollectionMethod, FILE_NAME, ProcessRow, read};

use crate::{HostFixture, only, wait};

/// A child that has used some CPU ticks and waits for input.
fn busy_child() -> Child {
    let script = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo done; read x";
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "done\n");
    child
}

fn stop_child(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Collector by BPF, if permitted; prints the reason if not.
fn bpf_collector() -> Option<ProcessCollector> {
    let processes = ProcessCollector::new();
    if let Some(note) = processes.fallback_reason() {
        println!("skipped: {note}");
    }
    (processes.method() == CollectionMethod::Bpf).then_some(processes)
}

#[track_caller]
fn row_of(processes: &mut ProcessCollector, pid: u32) -> ProcessRow {
    let rows = processes.read().unwrap();
    assert!(
        rows.windows(2).all(|pair| pair[0].pid < pair[1].pid),
        "by ascending number, each once"
    );
    *rows.iter().find(|row| row.pid == pid).expect("it is there")
}

/// Row of a child while it sleeps.
fn sleeping_row(processes: &mut ProcessCollector, pid: u32) -> ProcessRow {
    let mut found = None;
    wait("the child sleeps", || found.insert(row_of(processes, pid)).state == b'S');
    found.expect("it was looked at")
}

/// Field of `/proc/PID/stat` by its number, where the state is 3; the name has no spaces.
fn stat(pid: u32, field: usize) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = text.rsplit_once(')').unwrap();
    rest.split_whitespace().nth(field - 3).unwrap().parse().unwrap()
}

fn status(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
}

#[track_caller]
fn check_child(row: &ProcessRow) {
    let pid = row.pid;
    assert_eq!((row.ppid, row.name().as_ref(), row.threads), (std::process::id(), "sh", 1));
    assert_eq!(row.start, stat(pid, 22));
    assert_eq!(u64::from(row.uid), status(pid, "Uid"));
    assert_eq!((row.minor_faults, row.major_faults), (stat(pid, 10), stat(pid, 12)));
    let tick = 1_000_000_000 / u64::from(ProcessCollector::ticks_per_second());
    let ticks = stat(pid, 14) + stat(pid, 15);
    let found = (row.user_ns + row.system_ns) / tick;
    // Both tick counts in the file are rounded down.
    assert!(ticks > 2 && found >= ticks && found <= ticks + 2, "{found} and {ticks} ticks");
}

/// Number of possible CPUs: `0-3`, or `0,2-3`.
fn cpu_count() -> u64 {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let last = text.trim().rsplit([',', '-']).next().unwrap();
    last.parse::<u64>().unwrap() + 1
}

#[test]
fn both_methods_read_a_child_correctly() {
    let child = busy_child();
    let mut ways = vec![ProcessCollector::from_procfs()];
    ways.extend(bpf_collector());
    let rows: Vec<ProcessRow> = ways.iter_mut().map(|way| sleeping_row(way, child.id())).collect();
    rows.iter().for_each(check_child);
    if let [file, bpf] = &rows[..] {
        // Maximum per-CPU part of each of three counters, by the kernel's rule. Includes CPUs on
        // which this test may not run.
        let processors = cpu_count();
        let pages = 3 * processors * 32.max(2 * processors);
        let apart = file.rss_bytes.abs_diff(bpf.rss_bytes);
        assert!(apart <= pages * rustix::param::page_size() as u64, "{apart} bytes apart");
        assert_eq!(bpf.voluntary_switches, Some(status(child.id(), "voluntary_ctxt_switches")));
        let others = status(child.id(), "nonvoluntary_ctxt_switches");
        assert_eq!(bpf.involuntary_switches, Some(others));
        assert!(bpf.run_delay_ns.is_some() && file.run_delay_ns.is_none());
    }
    let pid = child.id();
    stop_child(child);
    for way in &mut ways {
        way.read().unwrap();
        assert!(way.rows().iter().all(|row| row.pid != pid), "it has ended");
    }
}

#[test]
fn threads_count_for_their_process_also_when_they_have_ended() {
    let Some(mut processes) = bpf_collector() else { return };
    let pid = std::process::id();
    let tick = 1_000_000_000 / u64::from(ProcessCollector::ticks_per_second());
    let ticks = || stat(pid, 14) + stat(pid, 15);
    // Waits until a thread that ends has used some ticks.
    let before = ticks();
    while ticks() < before + 5 {
        std::thread::spawn(|| (0..3_000_000u64).fold(0, |sum, i| std::hint::black_box(sum ^ i)))
            .join()
            .unwrap();
    }
    // The reading thread is the one that ran last: all others have ended or sleep. Threads of other
    // tests may start or end during a scrape: then a later scrape must be right.
    let mut found = Vec::new();
    while found.len() < 100 {
        let (before, row, after) = (ticks(), row_of(&mut processes, pid), ticks());
        let has = (row.user_ns + row.system_ns) / tick;
        if has + 2 >= before && has <= after + 2 && u64::from(row.threads) == stat(pid, 20) {
            return;
        }
        found.push((before, has, after, row.threads));
    }
    panic!("{found:?}");
}

#[test]
fn table_is_published_while_the_host_is_collected() {
    let dir = PathBuf::from(format!("/dev/shm/topdeck-host-{}", std::process::id()));
    // Independent of the umask: a directory writable by others is refused.
    if let Err(error) = fs::DirBuilder::new().mode(0o755).create(&dir) {
        return println!("skipped: there is no tmpfs at /dev/shm: {error}");
    }
    let place = HostFixture::single_reading();
    let mut settings = only("processes = true");
    settings.dir = Some(dir.clone());
    let host = place.start(settings.clone());
    let path = dir.join(FILE_NAME);
    // The first table exists when the role has started.
    let first = read(&path).unwrap();
    let own = first.processes.iter().find(|row| row.pid == std::process::id()).unwrap();
    assert_eq!(own.start, stat(own.pid, 22));
    let notes = host.warnings().join("\n");
    assert_eq!(
        first.collection.method == CollectionMethod::Procfs,
        notes.contains("read from /proc"),
        "{notes}"
    );
    // A second publisher reports that it cannot publish.
    let second = place.start(settings.clone());
    let notes = second.warnings().join("\n");
    assert!(notes.contains("another topdeck is publishing"), "{notes}");
    second.stop().unwrap();
    wait("it is written again", || read(&path).unwrap().generation >= 2);
    host.stop().unwrap();
    assert!(!path.exists(), "nobody writes it any more");
    fs::remove_dir_all(&dir).unwrap();
    let told = place.contents();
    assert!(told.number("host_bpf_available", &[("program", "processes")]).is_some());
}
