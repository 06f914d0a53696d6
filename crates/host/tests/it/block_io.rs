//! Block I/O: distributions have as many values as the kernel's own counters.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::{HostFixture, bpf_works, only};

const READS: u64 = 200;
const PAGE: usize = 4096;
/// Requests that one kernel counter has and the other has not yet.
const TOLERANCE_REQUESTS: u64 = 16;
/// Field indexes in `/proc/diskstats` after the name.
const FIELD_INDEXES: [(&str, usize); 4] =
    [("read", 0), ("write", 4), ("discard", 11), ("flush", 15)];

/// Whole disk of a file.
fn disk_of(path: &Path) -> Option<String> {
    let number = std::fs::metadata(path).ok()?.dev();
    let (major, minor) = (libc::major(number), libc::minor(number));
    let link = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let disk = if link.join("partition").exists() { link.parent()? } else { &link };
    Some(disk.file_name()?.to_str()?.to_owned())
}

/// Completed requests of the disk by operation.
fn completed(disk: &str) -> HashMap<&'static str, u64> {
    let text = std::fs::read_to_string("/proc/diskstats").unwrap();
    let mut lines = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let line = lines.find(|line| line[2] == disk).unwrap();
    let number = |at: usize| line.get(3 + at).map_or(0, |word| word.parse().unwrap());
    FIELD_INDEXES.into_iter().map(|(operation, at)| (operation, number(at))).collect()
}

/// Reads page by page past the page cache (O_DIRECT); an error if the file system refuses.
fn read_uncached(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let mut buffer = vec![0; 2 * PAGE];
    let at = buffer.as_ptr().align_offset(PAGE);
    for page in 0..READS {
        file.read_exact_at(&mut buffer[at..at + PAGE], page * PAGE as u64)?;
    }
    Ok(())
}

#[test]
fn every_request_counts_once() {
    let place = HostFixture::single_reading();
    let path = place.dir.join("pages");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![7; READS as usize * PAGE]).unwrap();
    file.sync_all().unwrap();
    let Some(disk) = disk_of(&path) else { return println!("skipped: no disk below {path:?}") };
    let outer = completed(&disk);
    let host = place.start(only("block_io = true"));
    if !bpf_works(&host) {
        return;
    }
    let inner = completed(&disk);
    if let Err(error) = read_uncached(&path) {
        return println!("skipped: no direct reads of {path:?}: {error}");
    }
    file.write_all(b"more").unwrap();
    file.sync_all().unwrap();
    let inner_end = completed(&disk);
    host.stop().unwrap();
    let outer_end = completed(&disk);
    let told = place.contents();
    // A BPF program does not run while it is running on the CPU: the kernel's misses are reported.
    let missed =
        told.number("host_bpf_recursion_misses_total", &[("program", "block_io")]).unwrap() as u64;
    println!("{missed} left out by the kernel");
    let slack = TOLERANCE_REQUESTS + missed;
    for (operation, _) in FIELD_INDEXES {
        let labels = [("device", disk.as_str()), ("operation", operation)];
        let (found, sum) = told.distribution_totals("host_block_io_latency", &labels);
        let least = inner_end[operation] - inner[operation];
        let most = outer_end[operation] - outer[operation];
        println!("{disk} {operation}: {found} counted, {least} to {most} in /proc/diskstats");
        assert!(
            found + slack >= least && found <= most + TOLERANCE_REQUESTS,
            "{found}: {least}..={most}"
        );
        assert_eq!(found > 0, sum > 0.0);
        // The two are read one after the other, and a request may complete in between.
        let (device, _) = told.distribution_totals("host_block_io_device_latency", &labels);
        assert!(device <= found + slack, "{device} of {found}");
    }
    let reads = [("device", disk.as_str()), ("operation", "read")];
    assert!(told.distribution_totals("host_block_io_latency", &reads).0 + slack >= READS);
    assert_eq!(told.number("host_block_io_errors_total", &reads), Some(0.0));
    assert_eq!(told.number("host_block_io_unmeasured_total", &[("reason", "no_slot")]), Some(0.0));
}

#[test]
fn without_bpf_sums_and_warning_are_reported() {
    let place = HostFixture::single_reading();
    let host = place.start(only("block_io = true"));
    let works = bpf_works(&host);
    host.stop().unwrap();
    let told = place.contents();
    let sums = told.series("host_disk_time_seconds_total", &[]).count();
    let is_noted = told.series("host_collector_warning", &[]).count() == 1;
    // Either distributions, or sums with a reason.
    assert_eq!((works, !works), (sums == 0, is_noted));
}
