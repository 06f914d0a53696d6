//! Layout of the metrics file; equal to `docs/formats/shm.md`.
//!
//! A file consists of words: 64 bits in the byte order of the machine, each written and read
//! atomically. Offsets and lengths are in bytes, times in nanoseconds of `CLOCK_MONOTONIC` unless
//! stated otherwise.
//!
//! ```text
//! header │ table of lanes │ registry: an entry per series │ strings │ lane 0 │ lane 1 │ …
//!                                                                    └ small cells │ large cells
//! ```
//! Every lane has the same cells at the same offsets. Lane 0 is the shared lane: threads without a
//! lane of their own write it with atomic instructions, and it holds gauges, texts and heartbeats.
//! Each other lane has one writing thread at a time.

/// A field: name, offset, size in bytes.
pub type Field = (&'static str, usize, usize);

/// First word: the eight bytes "TOPDECK1" on a little-endian machine.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TOPDECK1");
/// Version of the layout; readers refuse any other.
pub const VERSION: u64 = 1;
/// File name extension.
pub const EXTENSION: &str = "tdk";

/// The header.
pub const HEADER: [Field; 32] = [
    ("magic", 0, 8),
    ("version", 8, 8),
    ("incompatible", 16, 8),
    ("compatible", 24, 8),
    ("id_low", 32, 8),
    ("id_high", 40, 8),
    ("boot_low", 48, 8),
    ("boot_high", 56, 8),
    ("pid", 64, 8),
    ("pid_namespace", 72, 8),
    ("start_ticks", 80, 8),
    ("uid", 88, 8),
    ("created", 96, 8),
    ("created_unix", 104, 8),
    ("state", 112, 8),
    ("ended", 120, 8),
    ("registry", 128, 8),
    ("registry_capacity", 136, 8),
    ("registry_count", 144, 8),
    ("strings", 152, 8),
    ("strings_capacity", 160, 8),
    ("strings_used", 168, 8),
    ("lanes", 176, 8),
    ("lane_stride", 184, 8),
    ("lane_capacity", 192, 8),
    ("lanes_used", 200, 8),
    ("small_capacity", 208, 8),
    ("program", 216, 8),
    ("command", 224, 8),
    ("rejected_series", 232, 8),
    ("shared_lane_threads", 240, 8),
    ("lost_values", 248, 8),
];

/// Indexes of the header fields, in words.
pub mod header {
    /// An unknown name does not compile.
    const fn word(name: &str) -> usize {
        let mut at = 0;
        while !is_same(super::HEADER[at].0.as_bytes(), name.as_bytes()) {
            at += 1;
        }
        super::HEADER[at].1 / 8
    }

    const fn is_same(a: &[u8], b: &[u8]) -> bool {
        match (a, b) {
            ([a, rest_of_a @ ..], [b, rest_of_b @ ..]) => *a == *b && is_same(rest_of_a, rest_of_b),
            (a, b) => a.is_empty() && b.is_empty(),
        }
    }

    /// `MAGIC`.
    pub const MAGIC: usize = word("magic");
    /// `VERSION`.
    pub const VERSION: usize = word("version");
    /// Feature bits that a reader must support.
    pub const INCOMPATIBLE: usize = word("incompatible");
    /// Feature bits that a reader may ignore.
    pub const COMPATIBLE: usize = word("compatible");
    /// Random id.
    pub const ID: usize = word("id_low");
    /// Boot id of the machine.
    pub const BOOT: usize = word("boot_low");
    /// PID in the process' own namespace.
    pub const PID: usize = word("pid");
    /// Inode of the PID namespace.
    pub const PID_NAMESPACE: usize = word("pid_namespace");
    /// Start time in ticks since boot, as in /proc/PID/stat.
    pub const START_TICKS: usize = word("start_ticks");
    /// User id of the process.
    pub const UID: usize = word("uid");
    /// Creation time of the file.
    pub const CREATED: usize = word("created");
    /// Creation time since the Unix epoch.
    pub const CREATED_UNIX: usize = word("created_unix");
    /// One of [`super::state`].
    pub const STATE: usize = word("state");
    /// Time of exit, or when the process was found dead; 0 if unknown.
    pub const ENDED: usize = word("ended");
    /// Offset of the registry.
    pub const REGISTRY: usize = word("registry");
    /// Capacity of the registry in entries.
    pub const REGISTRY_CAPACITY: usize = word("registry_capacity");
    /// Number of entries.
    pub const REGISTRY_COUNT: usize = word("registry_count");
    /// Offset of the string table.
    pub const STRINGS: usize = word("strings");
    /// Capacity of the string table in bytes.
    pub const STRINGS_CAPACITY: usize = word("strings_capacity");
    /// Used bytes of the string table.
    pub const STRINGS_USED: usize = word("strings_used");
    /// Offset of lane 0.
    pub const LANES: usize = word("lanes");
    /// Distance between two lanes.
    pub const LANE_STRIDE: usize = word("lane_stride");
    /// Maximum number of lanes.
    pub const LANE_CAPACITY: usize = word("lane_capacity");
    /// Number of lanes.
    pub const LANES_USED: usize = word("lanes_used");
    /// Offset of the large cells in a lane.
    pub const SMALL_CAPACITY: usize = word("small_capacity");
    /// Program name, a text.
    pub const PROGRAM: usize = word("program");
    /// Command line, a text.
    pub const COMMAND: usize = word("command");
    /// Number of series rejected for lack of space.
    pub const REJECTED_SERIES: usize = word("rejected_series");
    /// Number of threads that found no lane of their own.
    pub const SHARED_LANE_THREADS: usize = word("shared_lane_threads");
    /// Number of records lost for lack of space for their cells.
    pub const LOST_VALUES: usize = word("lost_values");
    /// Number of used words of the header.
    pub const WORDS: usize = super::HEADER.len();
}

/// State of a process as written by itself.
pub mod state {
    /// The file is being created; its contents are undefined.
    pub const BUILDING: u64 = 0;
    /// The process runs, or died.
    pub const LIVE: u64 = 1;
    /// The process exited by itself.
    pub const EXITED: u64 = 2;
    /// The process called `exec`, or a later file of the same process replaced this one.
    pub const REPLACED: u64 = 3;
}

/// Bytes of the header: one page.
pub const HEADER_BYTES: usize = 4096;

/// Entry of the table of lanes, which follows the header.
pub const LANE: [Field; 4] =
    [("small_allocated", 0, 8), ("owner", 8, 8), ("shared", 16, 8), ("reserved", 24, 8)];
/// Size of [`LANE`].
pub const LANE_BYTES: usize = 32;
/// Maximum number of lanes: the shared one, and one for each of 255 concurrent threads.
pub const LANES_MAX: usize = 256;

/// Registry entry.
pub const ENTRY: [Field; 8] = [
    ("kind", 0, 8),
    ("name", 8, 8),
    ("labels", 16, 8),
    ("unit", 24, 8),
    ("help", 32, 8),
    ("cells", 40, 8),
    ("link", 48, 8),
    ("parameter", 56, 8),
];
/// Size of [`ENTRY`].
pub const ENTRY_BYTES: usize = 64;
/// Offset of the registry.
pub const REGISTRY_OFFSET: usize = HEADER_BYTES + LANES_MAX * LANE_BYTES;
/// Limit of series per process.
pub const ENTRIES_MAX: usize = 16_384;
/// Offset of the string table.
pub const STRINGS: usize = REGISTRY_OFFSET + ENTRIES_MAX * ENTRY_BYTES;
/// Capacity of the string table in bytes.
pub const STRINGS_BYTES: usize = 4 << 20;
/// Offset of lane 0.
pub const LANES_OFFSET: usize = (STRINGS + STRINGS_BYTES).next_multiple_of(PAGE_MAX);
/// Largest page size of any CPU: lanes start at a multiple of it, so that they can be mapped
/// everywhere.
pub const PAGE_MAX: usize = 64 << 10;
/// Address space of a lane; memory is allocated only for the used part.
pub const LANE_STRIDE: usize = 64 << 20;
/// Part of a lane for small cells.
pub const SMALL_BYTES: usize = 2 << 20;
/// Space is reserved in pages.
pub const PAGE: usize = 4096;

/// Offset of a lane.
pub const fn lane_offset(lane: usize) -> usize {
    LANES_OFFSET + lane * LANE_STRIDE
}

/// Kinds of series: the low byte of an entry's first word, which is written last.
pub mod kind {
    /// One word in each lane; the value is their sum.
    pub const COUNTER: u64 = 1;
    /// One word in each lane; the value is their signed sum.
    pub const UP_DOWN: u64 = 2;
    /// One signed word in lane 0.
    pub const GAUGE: u64 = 3;
    /// One word in lane 0, the bits of an IEEE 754 double.
    pub const FLOAT_GAUGE: u64 = 4;
    /// Cells of `TEXT`, in lane 0.
    pub const TEXT: u64 = 5;
    /// Cells of `HISTOGRAM` in each lane, and buckets among the large cells.
    pub const HISTOGRAM: u64 = 6;
    /// Cells of `IN_FLIGHT` in each lane, and slots among the large cells.
    pub const IN_FLIGHT: u64 = 7;
    /// Cells of `HEARTBEAT`, in lane 0.
    pub const HEARTBEAT: u64 = 8;
}

/// Small cells of a histogram. Its buckets are large cells: one word per bucket of the grid.
pub const HISTOGRAM: [Field; 8] = [
    ("begun", 0, 8),
    ("zero", 8, 8),
    ("sum_low", 16, 8),
    ("sum_high", 24, 8),
    ("not_min", 32, 8),
    ("max", 40, 8),
    ("touched", 48, 8),
    ("reserved", 56, 8),
];
/// Scale of the histogram grid (Exp2): 32 buckets per octave.
pub const SCALE: u32 = 5;
/// Number of buckets of a histogram: integers at that scale (`histogram.rs` compares it with the
/// grid's own number).
pub const BUCKETS: usize = 2_049;
/// Buckets per bit of `touched`.
pub const GROUP: usize = 1 << SCALE;
/// Bytes of a histogram's large cells.
pub const BUCKETS_BYTES: usize = (BUCKETS * 8).next_multiple_of(64);

/// Small cells of in-flight operations. Their slots are large cells.
pub const IN_FLIGHT: [Field; 8] = [
    ("started", 0, 8),
    ("ended", 8, 8),
    ("untracked", 16, 8),
    ("slots", 24, 8),
    ("hint", 32, 8),
    ("reserved_1", 40, 8),
    ("reserved_2", 48, 8),
    ("reserved_3", 56, 8),
];
/// Slot of one operation.
pub const SLOT: [Field; 4] =
    [("start", 0, 8), ("number", 8, 8), ("tags_1", 16, 8), ("tags_2", 24, 8)];
/// Size of [`SLOT`].
pub const SLOT_BYTES: usize = 32;
/// Slots per lane.
pub const SLOTS_MAX: usize = 16_384;
/// Limit of tags per operation: four strings, two per word.
pub const TAGS_MAX: usize = 4;
/// `start` of a slot while it is being filled.
pub const FILLING: u64 = 1;

/// Cells of a text: the low bit of `current` selects the active buffer.
pub const TEXT: [Field; 5] = [
    ("current", 0, 8),
    ("length_0", 8, 8),
    ("bytes_0", 16, 240),
    ("length_1", 256, 8),
    ("bytes_1", 264, 240),
];
/// Size of [`TEXT`], rounded up.
pub const TEXT_BYTES: usize = 512;
/// Offsets of the two buffers of a text, each with its length.
pub const TEXT_BUFFERS: [usize; 2] = [TEXT[1].1, TEXT[3].1];
/// Longest text value in bytes.
pub const TEXT_MAX: usize = TEXT[2].2;

/// Cells of a heartbeat.
pub const HEARTBEAT: [Field; 2] = [("beats", 0, 8), ("last", 8, 8)];
/// Size of [`HEARTBEAT`].
pub const HEARTBEAT_BYTES: usize = 16;

/// Longest name, label, unit or help text in bytes.
pub const STRING_MAX: usize = 4096;

const _: () = {
    assert!(
        LANES_OFFSET.is_multiple_of(PAGE_MAX)
            && LANE_STRIDE.is_multiple_of(PAGE)
            && SMALL_BYTES.is_multiple_of(PAGE)
    );
    assert!(SLOTS_MAX * SLOT_BYTES < LANE_STRIDE - SMALL_BYTES);
};
