//! Block I/O of a cgroup: the sum of what its devices have added.
//!
//! `io.stat` has a line per device, which ends with the device. Each device adds the difference to
//! its last value, so that the sum does not fall: queries would take that for a reset. A device
//! that consists of others (LVM, dm-crypt, RAID) is left out, because the same bytes are listed for
//! the disks below it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Devices whose last values are kept; beyond, only those that exist. `io.stat` has fewer.
const DEVICES_MAX: usize = 4_096;

/// Bytes of a cgroup: read, written.
#[derive(Debug, Default)]
pub(crate) struct CgroupIo {
    /// By device: `MAJOR:MINOR`.
    last: HashMap<String, [u64; 2]>,
    sum: [u64; 2],
}

impl CgroupIo {
    /// Adds the content of `io.stat`; returns the sums.
    pub(crate) fn add(&mut self, text: &str, stacks: &mut StackedDevices) -> [u64; 2] {
        // The end of a long file is missing.
        let text = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut device = None;
        for word in text.split_ascii_whitespace() {
            let Some((key, value)) = word.split_once('=') else {
                device = (!stacks.contains(word)).then_some(word);
                continue;
            };
            let operation = match key {
                "rbytes" => 0,
                "wbytes" => 1,
                _ => continue,
            };
            let (Some(device), Ok(value)) = (device, value.parse::<u64>()) else { continue };
            let last = &mut self.last.entry(device.to_owned()).or_default()[operation];
            // A lower value is that of a new device with this number.
            let added = value.checked_sub(*last).unwrap_or(value);
            self.sum[operation] = self.sum[operation].saturating_add(added);
            *last = value;
        }
        if self.last.len() > DEVICES_MAX {
            self.last.retain(|device, _| text.split_ascii_whitespace().any(|word| word == device));
        }
        self.sum
    }
}

/// Devices that consist of others, each looked up once per scrape.
#[derive(Debug)]
pub(crate) struct StackedDevices {
    /// `/sys/dev/block`.
    dir: PathBuf,
    known: HashMap<String, bool>,
}

impl StackedDevices {
    /// Devices of the host below a root.
    pub(crate) fn below(root: &Path) -> StackedDevices {
        StackedDevices { dir: root.join("sys/dev/block"), known: HashMap::new() }
    }

    /// Forgets what was looked up.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    fn contains(&mut self, device: &str) -> bool {
        if let Some(is_stacked) = self.known.get(device) {
            return *is_stacked;
        }
        let slaves = fs::read_dir(self.dir.join(device).join("slaves"));
        let is_stacked = slaves.is_ok_and(|mut slaves| slaves.next().is_some());
        self.known.insert(device.to_owned(), is_stacked);
        is_stacked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup_owner::tests::CgroupFiles;

    #[test]
    fn io_does_not_fall_when_a_device_goes_away() {
        let root = CgroupFiles::new();
        let mut stacks = StackedDevices::below(&root.0);
        let mut io = CgroupIo::default();
        for (text, expected) in [
            ("8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=500 wbytes=100 rios=1\n", [510, 120]),
            // 8:16 is gone, and comes back as it was.
            ("8:0 rbytes=11 wbytes=20 rios=1\n", [511, 120]),
            ("8:0 rbytes=11 wbytes=20\n8:16 rbytes=500 wbytes=100\n", [511, 120]),
            // Another device has its number.
            ("8:0 rbytes=11 wbytes=20\n8:16 rbytes=7 wbytes=0\n", [518, 120]),
            // Some kernels write devices without values on the line of the next one.
            ("8:32 8:0 rbytes=12 wbytes=21\n", [519, 121]),
            // Not the whole file.
            ("8:0 rbytes=13 wbytes=21\n8:16 rbytes=7 wbytes=1", [520, 121]),
            ("8:0 rbytes=x wbytes\n\n=\n", [520, 121]),
            ("", [520, 121]),
        ] {
            assert_eq!(io.add(text, &mut stacks), expected, "{text}");
        }
    }

    #[test]
    fn bytes_through_lvm_or_dm_crypt_are_counted_once() {
        let root = CgroupFiles::new();
        root.write("sys/dev/block/253:0/slaves/sda2/size", "1\n");
        std::fs::create_dir_all(root.0.join("sys/dev/block/8:0/slaves")).unwrap();
        let mut stacks = StackedDevices::below(&root.0);
        let mut io = CgroupIo::default();
        let text = "8:0 rbytes=10 wbytes=20\n253:0 rbytes=10 wbytes=20\n";
        assert_eq!(io.add(text, &mut stacks), [10, 20]);
    }

    #[test]
    fn last_values_are_bounded() {
        let root = CgroupFiles::new();
        let mut stacks = StackedDevices::below(&root.0);
        let mut io = CgroupIo::default();
        for minor in 0..DEVICES_MAX + 1 {
            io.add(&format!("7:{minor} rbytes=1\n"), &mut stacks);
        }
        assert_eq!((io.last.len(), io.sum), (1, [DEVICES_MAX as u64 + 1, 0]));
    }
}
