//! Host collector settings.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of the host collector. How often is the intake's interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The label `host` of all series: the host's name.
    pub host: String,
    /// Processors, memory, disks and networks out of files of the kernel: `true` by default. About 60 us a reading.
    pub procfs: bool,
    /// The distribution of each block device's times, by a program in the kernel: `true` by default. Needs root;
    /// without, the sums of `/proc/diskstats` are told, and why.
    pub block_io: bool,
    /// The distribution of the times that tasks wait for a processor, by a program in the kernel: `true` by default.
    /// Needs root; without, it is told why there is none.
    pub run_queue: bool,
    /// The process table, published each second in shared memory: `true` by default. Some 100 us a second for a hundred
    /// processes.
    pub processes: bool,
    /// Where it is published: `None`, the default, for [`shm::folder`].
    pub folder: Option<PathBuf>,
    /// How often a thread means to wake up to see how late it is: 10 ms by default, `None` for never. From 100 us to
    /// 10 s.
    pub hiccup_interval: Option<Duration>,
    /// How often what programs record into shared memory is read: 1 s by default, `None` for never. From 100 ms to
    /// 30 s.
    pub shm_interval: Option<Duration>,
}

impl Settings {
    /// The shortest period of the thread that wakes up.
    pub const HICCUP_INTERVAL_MIN: Duration = Duration::from_micros(100);
    /// The longest.
    pub const HICCUP_INTERVAL_MAX: Duration = Duration::from_secs(10);
    /// The shortest time between two readings of programs.
    pub const SHM_INTERVAL_MIN: Duration = Duration::from_millis(100);
    /// The longest: files of programs that ended are there for a minute.
    pub const SHM_INTERVAL_MAX: Duration = Duration::from_secs(30);
    /// Bytes of a host's name at the most.
    pub const HOST_BYTES_MAX: usize = 255;

    /// All there is of a host of that name.
    pub fn for_host(host: impl Into<String>) -> Settings {
        Settings {
            host: host.into(),
            procfs: true,
            block_io: true,
            run_queue: true,
            processes: true,
            folder: None,
            hiccup_interval: Some(Duration::from_millis(10)),
            shm_interval: Some(Duration::from_secs(1)),
        }
    }
}
