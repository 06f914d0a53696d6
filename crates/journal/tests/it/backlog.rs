//! A backlog far larger than memory: reading it takes the memory of two frames, and is as fast at
//! the end as at the start.

use std::time::Instant;

use journal::*;

use crate::processes::{ChildArguments, ChildProcess, TestDir, open, print_line, sizes};

/// Arguments: journal, number of records of 1 KiB.
pub(crate) fn heap(part: ChildArguments) {
    let journal = open(part.path(0), &Options::default()).unwrap();
    let count = part.number(1);
    journal.add_subscriber("s", StartPosition::First, true).unwrap();
    let mut record = [0; 1024];
    let since = Instant::now();
    for i in 0..count {
        stamp(&mut record, i);
        let _ = journal.append(&record, Level::Process).unwrap();
    }
    journal.flush(Level::Disk).unwrap();
    let took = since.elapsed().as_secs_f64();
    print_line(&format!("written: {:.0} records/s", count as f64 / took));

    // Read in ten parts, each of which is timed.
    let mut subscriber = journal.subscribe("s").unwrap();
    let (mut next, mut rates, mut since) = (0, Vec::new(), Instant::now());
    while next < count {
        match subscriber.next().unwrap() {
            Some(ReadItem::Batch(batch)) => {
                for got in batch.records() {
                    assert_eq!(got.position, next);
                    stamp(&mut record, next);
                    assert!(got.bytes == record, "record {next} is not what was appended");
                    next += 1;
                }
            }
            other => panic!("{other:?} at {next} of {count}"),
        }
        let part = count / 10;
        if next >= part * (rates.len() as u64 + 1) {
            rates.push((part as f64 / since.elapsed().as_secs_f64()).round());
            since = Instant::now();
            let position = subscriber.position();
            subscriber.commit(position, Level::Process).unwrap();
        }
    }
    assert!(subscriber.next().unwrap().is_none());
    print_line(&format!("read: {rates:?} records/s"));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    print_line(peak.trim().trim_end_matches(" kB"));
    print_line(&journal.stat().unwrap().segments.to_string());
}

/// Peak memory in kB of a process that writes this many megabytes and then reads them.
fn check(megabytes: u64) {
    let dir = TestDir::new("backlog");
    dir.create(&Settings { compression: Compression::None, ..sizes(1 << 20, 16 << 20) });
    let records = megabytes << 10;
    let journal = dir.journal();
    let mut child = ChildProcess::start("heap", &[journal.to_str().unwrap(), &records.to_string()]);
    for _ in 0..2 {
        let line = child.line();
        assert!(!line.is_empty(), "the child failed");
        println!("{line}");
    }
    let peak_kb: u64 = child.line().parse().unwrap();
    println!("{megabytes} MB: {peak_kb} kB of memory at most");
    assert!(peak_kb < 100_000, "{peak_kb} kB");
    let segments: u64 = child.line().parse().unwrap();
    assert!(segments <= 2, "{segments} segments are kept though all was read");
    child.finish();
}

fn stamp(record: &mut [u8; 1024], i: u64) {
    record[..8].copy_from_slice(&i.to_le_bytes());
    record[1016..].copy_from_slice(&(!i).to_le_bytes());
}

#[test]
fn a_backlog_needs_no_memory() {
    check(200);
}

#[test]
#[ignore = "soak: 10 GB of disk, some minutes"]
fn soak_backlog_10_gb() {
    check(10_000);
}
