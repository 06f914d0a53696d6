//! Mapping, touching and unmapping memory in a process that has much of it, while others ask how
//! much: who goes over all its pages holds the lock that mapping needs.

use std::fs;
use std::io;
use std::sync::atomic::Ordering;

use disk::Region;

use super::experiment::PreparedExperiment;
use render::bytes::format_bytes;

/// What is mapped each time, and what memory is counted in.
const PIECE_BYTES: u64 = 1 << 20;
/// With less, going over it takes no time.
const LEAST_BYTES: u64 = 16 << 20;
const PAGE_BYTES: usize = 4096;

pub(crate) fn prepare(wanted: u64) -> Result<PreparedExperiment, String> {
    let most = available_bytes().ok_or("cannot read /proc/meminfo")? / 4;
    let size = wanted.min(most) / PIECE_BYTES * PIECE_BYTES;
    if size < LEAST_BYTES {
        let (size, least) = (format_bytes(size), format_bytes(LEAST_BYTES));
        return Err(format!(
            "it takes {least} of memory at the least, and a quarter of what is available, or what \
             --memory says, is {size}"
        ));
    }
    let resident = allocate_touched(size)
        .map_err(|error| format!("cannot map {}: {error}", format_bytes(size)))?;
    let less = match size < wanted {
        true => format!(" (a quarter of what is available, not {})", format_bytes(wanted)),
        false => String::new(),
    };
    let once = move || {
        // It is held as long as this is.
        std::hint::black_box(&resident);
        allocate_touched(PIECE_BYTES).map(drop)
    };
    Ok(PreparedExperiment {
        title: format!(
            "mapping, touching and unmapping 1 MiB in a process with {}{less}",
            format_bytes(size)
        ),
        operation: "map, touch and unmap",
        operation_once: Box::new(once),
    })
}

/// Memory whose pages are all there.
fn allocate_touched(size: u64) -> io::Result<Region> {
    let region = Region::anonymous(size)?;
    region.wake_word(0).store(1, Ordering::Relaxed);
    for word in region.iter().step_by(PAGE_BYTES / 8) {
        word.store(1, Ordering::Relaxed);
    }
    Ok(region)
}

/// Bytes that may be had: of the machine, or of the container if that is less.
fn available_bytes() -> Option<u64> {
    let machine = parse_available(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let number = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/sys/fs/cgroup/memory.{name}")).ok()?;
        text.trim().parse().ok()
    };
    let container = number("max").map(|most| most.saturating_sub(number("current").unwrap_or(0)));
    Some(container.map_or(machine, |container| machine.min(container)))
}

fn parse_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_parsed() {
        let text = "MemTotal:  24684364 kB\nMemFree: 1 kB\nMemAvailable:   24028816 kB\n";
        assert_eq!(parse_available(text), Some(24_028_816 << 10));
        assert_eq!(parse_available("MemTotal: 1 kB\n"), None);
        assert_eq!(parse_available("MemAvailable: much kB\n"), None);
        assert_eq!(parse_available("MemAvailable: 18446744073709551615 kB\n"), None);
    }

    #[test]
    fn too_little_memory_is_reported() {
        let error = prepare(PIECE_BYTES).err().unwrap();
        assert!(error.starts_with("it takes 16 MiB of memory at the least"), "{error}");
    }
}
