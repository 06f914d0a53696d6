//! C structures; handles, operations and tags are valid when zeroed. `tests/it/header.rs` writes
//! them to the header, with their comments.

use std::ffi::c_char;

/// A label: name and value.
#[repr(C)]
pub(crate) struct Label {
    /// Name, not empty, unique in a series.
    pub(crate) name: *const c_char,
    /// Value.
    pub(crate) value: *const c_char,
}

/// Description of a metric. All fields except the name may be zero. Texts are UTF-8,
/// zero-terminated, and copied.
#[repr(C)]
pub(crate) struct Description {
    /// Name, 1 to 4,096 bytes.
    pub(crate) name: *const c_char,
    /// Unit in UCUM: "ns", "By", "1".
    pub(crate) unit: *const c_char,
    /// Help text.
    pub(crate) help: *const c_char,
    /// Labels.
    pub(crate) labels: *const Label,
    /// Number of labels.
    pub(crate) label_count: usize,
    /// Role of the metric: one of TD_ROLE_OTHER and so on.
    pub(crate) role: u32,
    /// Must be zero.
    pub(crate) reserved: u32,
    /// Related metric of the role, such as the capacity of a usage: the handle in its `word`.
    pub(crate) link: u64,
}

/// Counter: monotonic, modulo 2^64.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Counter {
    /// Handle of the metric, opaque; 0 until registered: records are dropped.
    pub(crate) word: u64,
}

/// Up-down counter: the sum of additions and subtractions of all threads.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UpDownCounter {
    /// Handle of the metric, opaque; 0 until registered.
    pub(crate) word: u64,
}

/// Integer gauge: the last write wins.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Gauge {
    /// Handle of the metric, opaque; 0 until registered.
    pub(crate) word: u64,
}

/// Floating-point gauge: the last write wins.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FloatGauge {
    /// Handle of the metric, opaque; 0 until registered.
    pub(crate) word: u64,
}

/// Text of up to 240 bytes: a version, a state, the name of a leader.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Text {
    /// Handle of the metric, opaque; 0 until registered.
    pub(crate) word: u64,
}

/// Histogram of integers, relative error at most 1.08 %; count, sum, minimum and maximum are exact.
/// Times are nanoseconds.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Histogram {
    /// Handle of the metric, opaque; 0 until registered.
    pub(crate) word: u64,
}

/// Table of in-flight operations.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct InFlight {
    /// Handle of the metric, opaque; 0 until registered.
    pub(crate) word: u64,
}

/// Heartbeat: number of beats and time of the last one.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Heartbeat {
    /// Handle of the metric, opaque; 0 until registered.
    pub(crate) word: u64,
}

/// Interned tag value: a number that refers to a text. Zero has no text.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Tag {
    /// Number of the text.
    pub(crate) word: u32,
}

/// In-flight operation; zeros are none. Do not end two copies of one.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Operation {
    /// Private to the library.
    pub(crate) words: [u64; 4],
}

/// Start time of a measured duration.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch {
    /// Private to the library.
    pub(crate) start: u64,
}

/// Lane of a thread, for the inline functions of this header; set by the library.
#[repr(C)]
pub(crate) struct Lane {
    /// First byte of the lane.
    pub(crate) base: *mut c_char,
    /// End of the usable cells, in bytes from `base`; 0 if there is no lane.
    pub(crate) end: usize,
}
