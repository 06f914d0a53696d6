//! Reads the file of the log of deliveries after a start or a crash.

use std::path::Path;

use disk::{Disk, read_file};

use super::DeliveryLogError;
use super::state::DeliveryState;
use crate::delivery_record::{DELIVERY_LOG_VERSION, DeliveryRecord};

/// Larger files are not read to the end; `LogLimits::bytes_max` is below.
const FILE_BYTES_MAX: u64 = 1 << 30;
const HEADER: &str = "topdeck deliveries ";

/// State of a file.
pub(super) struct LogContent {
    pub(super) state: DeliveryState,
    /// Lines that are not intact, without those at the end of the file.
    pub(super) damaged_lines: u64,
    /// Whether the file is missing or has bytes that are not intact lines.
    pub(super) needs_rewrite: bool,
}

/// Reads a file. The end of a file after a crash may have any bytes: what is not an intact line is
/// skipped. The first line is written with the file, in one replacement, so it is intact unless the
/// file is damaged.
pub(super) fn read_log(disk: &dyn Disk, path: &Path) -> Result<LogContent, DeliveryLogError> {
    let found = read_file(disk, path, FILE_BYTES_MAX)?;
    let mut content = LogContent {
        state: DeliveryState::default(),
        damaged_lines: 0,
        needs_rewrite: found.is_none(),
    };
    let bytes = found.unwrap_or_default();
    let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let expected = format!("{HEADER}{DELIVERY_LOG_VERSION}\n");
    if first != expected.as_bytes() {
        if first.starts_with(HEADER.as_bytes()) && first.ends_with(b"\n") {
            let found = String::from_utf8_lossy(first).trim_end().to_owned();
            return Err(DeliveryLogError::Version { path: path.to_owned(), found });
        }
        content.needs_rewrite = true;
        content.damaged_lines += u64::from(first.ends_with(b"\n"));
    }
    // Only the end of the file may contain what was not fsynced.
    let mut unreadable_lines = 0;
    for line in lines {
        let record = line.strip_suffix(b"\n").map(DeliveryRecord::decode);
        match record {
            Some(Ok(record)) => {
                content.state.apply(record);
                content.damaged_lines += std::mem::take(&mut unreadable_lines);
            }
            _ => {
                content.needs_rewrite = true;
                unreadable_lines += 1;
            }
        }
    }
    Ok(content)
}
