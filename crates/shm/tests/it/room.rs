//! Whether memory has room for what tests record. Tests of other crates ask it too.

/// What files of metrics of tests may take that run at once. Docker gives 64 MiB to all.
const SPACE_BYTES: u64 = 32 << 20;

/// Whether there is room for files of metrics; says so where there is not. What finds no room is
/// counted as lost, and is no fault of who records.
pub(crate) fn has_space() -> bool {
    let free = rustix::fs::statvfs("/dev/shm").map(|found| found.f_bavail * found.f_frsize);
    match free {
        Ok(SPACE_BYTES..) => return true,
        Ok(free) => {
            println!("skipped: /dev/shm has {free} bytes left, and {SPACE_BYTES} are needed")
        }
        Err(error) => println!("skipped: there is no /dev/shm: {error}"),
    }
    false
}
