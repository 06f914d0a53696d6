//! Maps, touches and unmaps memory in a process with much memory, while observers read its memory
//! size: a reader that walks all pages holds `mmap_lock`, which mmap needs.

use std::fs;
use std::io;
use std::sync::atomic::Ordering;

use disk::Region;

use super::experiment::PreparedExperiment;
use render::bytes::format_bytes;

/// Size of a mapping, and granularity of memory sizes.
const MAPPING_BYTES: u64 = 1 << 20;
/// Minimum memory: with less, walking the pages takes no time.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
const PAGE_BYTES: usize = 4096;

pub(crate) fn prepare(wanted: u64) -> Result<PreparedExperiment, String> {
    let size_max = available_bytes().ok_or("cannot read /proc/meminfo")? / 4;
    let size = wanted.min(size_max) / MAPPING_BYTES * MAPPING_BYTES;
    if size < MEMORY_BYTES_MIN {
        let (size, least) = (format_bytes(size), format_bytes(MEMORY_BYTES_MIN));
        return Err(format!(
            "at least {least} of memory is required; a quarter of the available memory, or \
             --memory, is {size}"
        ));
    }
    let resident = allocate_touched(size)
        .map_err(|error| format!("cannot map {}: {error}", format_bytes(size)))?;
    let note = match size < wanted {
        true => format!(" (a quarter of the available memory, not {})", format_bytes(wanted)),
        false => String::new(),
    };
    let once = move || {
        // Keeps the memory until the experiment is dropped.
        std::hint::black_box(&resident);
        allocate_touched(MAPPING_BYTES).map(drop)
    };
    Ok(PreparedExperiment {
        title: format!("map, touch and unmap 1 MiB in a process with {}{note}", format_bytes(size)),
        operation: "map, touch and unmap",
        operation_once: Box::new(once),
    })
}

/// Allocates memory and touches all pages.
fn allocate_touched(size: u64) -> io::Result<Region> {
    let region = Region::anonymous(size)?;
    // The page of the futex words, which are not part of the slice.
    region.futex_word(0).store(1, Ordering::Relaxed);
    for word in region.iter().step_by(PAGE_BYTES / 8) {
        word.store(1, Ordering::Relaxed);
    }
    Ok(region)
}

/// Available memory in bytes: of the machine, or of the container if that is less.
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
        let error = prepare(MAPPING_BYTES).err().unwrap();
        assert!(error.starts_with("at least 16 MiB of memory is required"), "{error}");
    }
}
