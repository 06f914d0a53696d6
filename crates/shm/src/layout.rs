//! Layout of the metrics file; equal to `docs/formats/shm.md`.
//!
//! A file is made of words: 64 bits, in the byte order of the machine, each written and read as a
//! whole. Offsets and lengths are bytes, times nanoseconds of `CLOCK_MONOTONIC` unless they say
//! otherwise.
//!
//! ```text
//! header │ table of lanes │ registry: an entry per series │ texts │ lane 0 │ lane 1 │ …
//!                                                                  └ small cells │ large cells
//! ```
//! Every lane has the same cells at the same offsets. Lane 0 is written with atomic instructions by
//! whoever has no lane of their own, and has what is set rather than counted; each other lane is
//! written by one thread at a time.

/// A field: name, offset, size in bytes.
pub type Field = (&'static str, usize, usize);

/// The first word: the eight bytes "TOPDECK1" where the least significant byte comes first.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TOPDECK1");
/// The version of what follows; readers refuse any other.
pub const VERSION: u64 = 1;
/// How the names of files end.
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
    ("texts", 152, 8),
    ("texts_capacity", 160, 8),
    ("texts_used", 168, 8),
    ("lanes", 176, 8),
    ("lane_stride", 184, 8),
    ("lane_capacity", 192, 8),
    ("lanes_used", 200, 8),
    ("small_capacity", 208, 8),
    ("program", 216, 8),
    ("command", 224, 8),
    ("refused", 232, 8),
    ("sharing", 240, 8),
    ("lost", 248, 8),
];

/// Where the fields of the header are, counted in words.
pub mod header {
    /// A name that is not in the table does not compile.
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
    /// Features that a reader must know.
    pub const INCOMPATIBLE: usize = word("incompatible");
    /// Features that it need not.
    pub const COMPATIBLE: usize = word("compatible");
    /// Random.
    pub const ID: usize = word("id_low");
    /// The boot of the machine.
    pub const BOOT: usize = word("boot_low");
    /// As the process sees itself.
    pub const PID: usize = word("pid");
    /// The inode of its namespace of process ids.
    pub const PID_NAMESPACE: usize = word("pid_namespace");
    /// When it started, in ticks since boot, as in /proc/PID/stat.
    pub const START_TICKS: usize = word("start_ticks");
    /// Whose it is.
    pub const UID: usize = word("uid");
    /// When the file was made.
    pub const CREATED: usize = word("created");
    /// The same, since 1970.
    pub const CREATED_UNIX: usize = word("created_unix");
    /// One of [`super::state`].
    pub const STATE: usize = word("state");
    /// When it ended, or was found dead; 0 while nobody knows.
    pub const ENDED: usize = word("ended");
    /// Where the registry begins.
    pub const REGISTRY: usize = word("registry");
    /// How many entries it has room for.
    pub const REGISTRY_CAPACITY: usize = word("registry_capacity");
    /// How many it has.
    pub const REGISTRY_COUNT: usize = word("registry_count");
    /// Where the texts begin.
    pub const TEXTS: usize = word("texts");
    /// Bytes that there are for them.
    pub const TEXTS_CAPACITY: usize = word("texts_capacity");
    /// Bytes of them that are used.
    pub const TEXTS_USED: usize = word("texts_used");
    /// Where lane 0 begins.
    pub const LANES: usize = word("lanes");
    /// From one lane to the next.
    pub const LANE_STRIDE: usize = word("lane_stride");
    /// How many lanes there may be.
    pub const LANE_CAPACITY: usize = word("lane_capacity");
    /// How many there are.
    pub const LANES_USED: usize = word("lanes_used");
    /// Where in a lane the large cells begin.
    pub const SMALL_CAPACITY: usize = word("small_capacity");
    /// The program's name, a text.
    pub const PROGRAM: usize = word("program");
    /// Its command line, a text.
    pub const COMMAND: usize = word("command");
    /// How many series found no room.
    pub const REFUSED: usize = word("refused");
    /// How often a thread found no lane of its own.
    pub const SHARING: usize = word("sharing");
    /// How many records found no room for their cells.
    pub const LOST: usize = word("lost");
    /// Words of the header that mean something.
    pub const WORDS: usize = super::HEADER.len();
}

/// What a process says of itself.
pub mod state {
    /// It is being made: nothing can be relied on.
    pub const BUILDING: u64 = 0;
    /// The process runs; or it ended without a word.
    pub const LIVE: u64 = 1;
    /// It ended as it meant to.
    pub const ENDED: u64 = 2;
    /// It became another program (`exec`), or a later file of the same process took over.
    pub const REPLACED: u64 = 3;
}

/// Bytes of the header: one page.
pub const HEADER_BYTES: usize = 4096;

/// An entry of the table of lanes, which follows the header.
pub const LANE: [Field; 4] =
    [("small_reserved", 0, 8), ("owner", 8, 8), ("shared", 16, 8), ("reserved", 24, 8)];
/// Size of [`LANE`].
pub const LANE_BYTES: usize = 32;
/// Lanes: the shared one, and one for each of 255 threads at once.
pub const LANES_MAX: usize = 256;

/// An entry of the registry.
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
/// Where the registry begins.
pub const REGISTRY: usize = HEADER_BYTES + LANES_MAX * LANE_BYTES;
/// Series of a process at the most.
pub const ENTRIES_MAX: usize = 16_384;
/// Where the texts begin.
pub const TEXTS: usize = REGISTRY + ENTRIES_MAX * ENTRY_BYTES;
/// Bytes of texts at the most.
pub const TEXTS_BYTES: usize = 4 << 20;
/// Where lane 0 begins.
pub const LANES: usize = (TEXTS + TEXTS_BYTES).next_multiple_of(PAGE_MAX);
/// The largest page of any processor: lanes begin at one, so that they can be mapped everywhere.
pub const PAGE_MAX: usize = 64 << 10;
/// Address space of a lane; only what is used becomes memory.
pub const LANE_STRIDE: usize = 64 << 20;
/// How much of it is for small cells.
pub const SMALL_BYTES: usize = 2 << 20;
/// Room is taken in pages.
pub const PAGE: usize = 4096;

/// Where a lane begins.
pub const fn lane_offset(lane: usize) -> usize {
    LANES + lane * LANE_STRIDE
}

/// Kinds of series, the low byte of an entry's first word, which is written last.
pub mod kind {
    /// One word in each lane; they add up.
    pub const COUNTER: u64 = 1;
    /// One word in each lane; they add up to a signed number.
    pub const UP_DOWN: u64 = 2;
    /// One signed word in lane 0.
    pub const GAUGE: u64 = 3;
    /// One word in lane 0, the bits of a double.
    pub const FLOAT_GAUGE: u64 = 4;
    /// Cells as in `TEXT`, in lane 0.
    pub const TEXT: u64 = 5;
    /// Cells as in `HISTOGRAM` in each lane, and buckets among the large cells.
    pub const HISTOGRAM: u64 = 6;
    /// Cells as in `IN_FLIGHT` in each lane, and slots among the large cells.
    pub const IN_FLIGHT: u64 = 7;
    /// Cells as in `HEARTBEAT`, in lane 0.
    pub const HEARTBEAT: u64 = 8;
}

/// The small cells of a histogram. Its buckets are large cells: one word for each place of the
/// grid.
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
/// The scale of histograms' grid (Exp2): 32 buckets an octave.
pub const SCALE: u32 = 5;
/// Buckets of a histogram: places of whole numbers at that scale (`histogram.rs` compares it with
/// the grid's own number).
pub const BUCKETS: usize = 2_049;
/// Buckets that one bit of `touched` stands for.
pub const GROUP: usize = 1 << SCALE;
/// Bytes of a histogram's large cells.
pub const BUCKETS_BYTES: usize = (BUCKETS * 8).next_multiple_of(64);

/// The small cells of operations in flight. Their slots are large cells.
pub const IN_FLIGHT: [Field; 8] = [
    ("started", 0, 8),
    ("ended", 8, 8),
    ("unlisted", 16, 8),
    ("slots", 24, 8),
    ("hint", 32, 8),
    ("reserved_1", 40, 8),
    ("reserved_2", 48, 8),
    ("reserved_3", 56, 8),
];
/// A slot: one operation.
pub const SLOT: [Field; 4] =
    [("start", 0, 8), ("number", 8, 8), ("tags_1", 16, 8), ("tags_2", 24, 8)];
/// Size of [`SLOT`].
pub const SLOT_BYTES: usize = 32;
/// Slots of a lane at the most.
pub const SLOTS_MAX: usize = 16_384;
/// Tags of an operation at the most: four texts, two to a word.
pub const TAGS_MAX: usize = 4;
/// A slot's `start` while it is filled.
pub const FILLING: u64 = 1;

/// The cells of a text: which of the two buffers counts is the low bit of `current`.
pub const TEXT: [Field; 5] = [
    ("current", 0, 8),
    ("length_0", 8, 8),
    ("bytes_0", 16, 240),
    ("length_1", 256, 8),
    ("bytes_1", 264, 240),
];
/// Size of [`TEXT`], rounded up.
pub const TEXT_BYTES: usize = 512;
/// Where the two buffers of a text begin, each with its length.
pub const TEXT_BUFFERS: [usize; 2] = [TEXT[1].1, TEXT[3].1];
/// Bytes of a text that is a value, at the most.
pub const TEXT_MAX: usize = TEXT[2].2;

/// The cells of a heartbeat.
pub const HEARTBEAT: [Field; 2] = [("beats", 0, 8), ("last", 8, 8)];
/// Size of [`HEARTBEAT`].
pub const HEARTBEAT_BYTES: usize = 16;

/// Bytes of a name, a label, a unit or a help text at the most.
pub const STRING_MAX: usize = 4096;

const _: () = {
    assert!(
        LANES.is_multiple_of(PAGE_MAX)
            && LANE_STRIDE.is_multiple_of(PAGE)
            && SMALL_BYTES.is_multiple_of(PAGE)
    );
    assert!(SLOTS_MAX * SLOT_BYTES < LANE_STRIDE - SMALL_BYTES);
};
