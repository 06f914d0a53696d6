//! Whether there is enough tmpfs space for tests. Tests of other crates use it too.

/// Space for metrics files of concurrent tests. Docker's default for /dev/shm is 64 MiB.
const SPACE_BYTES: u64 = 32 << 20;

/// Whether there is space for metrics files; prints a message if not. Without space, records count
/// as lost, which is not an error of the tested code.
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
