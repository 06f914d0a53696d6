//! Block I/O: as many in the distributions as the kernel has in its own books.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use host::Settings;

use crate::{Place, nothing, works};

const READS: u64 = 200;
const PAGE: usize = 4096;
/// Requests that are in the kernel's one book and on their way to the other while a test looks.
const BETWEEN: u64 = 16;
/// Places in `/proc/diskstats` behind the name.
const PLACES: [(&str, usize); 4] = [("read", 0), ("write", 4), ("discard", 11), ("flush", 15)];

/// The whole disk that a file is on.
fn disk_of(path: &Path) -> Option<String> {
    let number = std::fs::metadata(path).ok()?.dev();
    let (major, minor) = (libc::major(number), libc::minor(number));
    let link = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let disk = if link.join("partition").exists() { link.parent()? } else { &link };
    Some(disk.file_name()?.to_str()?.to_owned())
}

/// What the disk has completed, by operation.
fn completed(disk: &str) -> HashMap<&'static str, u64> {
    let text = std::fs::read_to_string("/proc/diskstats").unwrap();
    let mut lines = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let line = lines.find(|line| line[2] == disk).unwrap();
    let number = |at: usize| line.get(3 + at).map_or(0, |word| word.parse().unwrap());
    PLACES.into_iter().map(|(operation, at)| (operation, number(at))).collect()
}

/// Reads a page after page past the page cache; an error where the file system will not.
fn read_directly(path: &Path) -> std::io::Result<()> {
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
    let place = Place::once();
    let path = place.dir.join("pages");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![7; READS as usize * PAGE]).unwrap();
    file.sync_all().unwrap();
    let Some(disk) = disk_of(&path) else { return println!("skipped: no disk below {path:?}") };
    let outer = completed(&disk);
    let host = place.start(Settings { block_io: true, ..nothing() });
    if !works(&host) {
        return;
    }
    let inner = completed(&disk);
    if let Err(error) = read_directly(&path) {
        return println!("skipped: no direct reads of {path:?}: {error}");
    }
    file.write_all(b"more").unwrap();
    file.sync_all().unwrap();
    let inner_end = completed(&disk);
    host.stop().unwrap();
    let outer_end = completed(&disk);
    let told = place.told();
    // A program does not run where it is running: what the kernel left out is told.
    let missed = told.number("host_bpf_missed_total", &[("program", "block_io")]).unwrap() as u64;
    println!("{missed} left out by the kernel");
    let slack = BETWEEN + missed;
    for (operation, _) in PLACES {
        let labels = [("device", disk.as_str()), ("operation", operation)];
        let (found, sum) = told.recorded("host_block_io", &labels);
        let least = inner_end[operation] - inner[operation];
        let most = outer_end[operation] - outer[operation];
        println!("{disk} {operation}: {found} counted, {least} to {most} in /proc/diskstats");
        assert!(found + slack >= least && found <= most + BETWEEN, "{found}: {least}..={most}");
        assert_eq!(found > 0, sum > 0.0);
        // The one is read after the other, and a request may end between them.
        let (device, _) = told.recorded("host_block_io_device", &labels);
        assert!(device <= found + slack, "{device} of {found}");
    }
    let reads = [("device", disk.as_str()), ("operation", "read")];
    assert!(told.recorded("host_block_io", &reads).0 + slack >= READS);
    assert_eq!(told.number("host_block_io_errors_total", &reads), Some(0.0));
    assert_eq!(told.number("host_block_io_untimed_total", &[("cause", "no slot")]), Some(0.0));
}

#[test]
fn without_programs_there_are_sums_and_a_reason() {
    let place = Place::once();
    let host = place.start(Settings { block_io: true, ..nothing() });
    let works = works(&host);
    host.stop().unwrap();
    let told = place.told();
    let sums = told.of("host_disk_time_seconds_total", &[]).count();
    let is_noted = told.of("host_note", &[]).count() == 1;
    // Distributions or sums with a reason, never neither.
    assert_eq!((works, !works), (sums == 0, is_noted));
}
