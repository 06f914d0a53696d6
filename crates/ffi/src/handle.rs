//! C structures, all valid when zeroed. `tests/it/header.rs` writes them into the header, with
//! their comments.

use std::ffi::c_char;

/// A label: name and value.
#[repr(C)]
pub(crate) struct Label {
    /// Its name, not empty, each once.
    pub(crate) name: *const c_char,
    /// Its value.
    pub(crate) value: *const c_char,
}

/// What a metric is. All but the name may be zero. Texts are UTF-8, end with a zero byte, and are
/// copied.
#[repr(C)]
pub(crate) struct Description {
    /// Its name, 1 to 4,096 bytes.
    pub(crate) name: *const c_char,
    /// What it is measured in, as UCUM writes it: "ns", "By", "1".
    pub(crate) unit: *const c_char,
    /// What it means.
    pub(crate) help: *const c_char,
    /// Its labels.
    pub(crate) labels: *const Label,
    /// How many labels there are.
    pub(crate) label_count: usize,
    /// What it is to the program: one of TD_ROLE_OTHER and so on.
    pub(crate) role: u32,
    /// Zero.
    pub(crate) reserved: u32,
    /// What the role refers to: the `word` of another metric, such as the capacity of what is used.
    pub(crate) link: u64,
}

/// Counts what happens: only grows, modulo 2^64.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Counter {
    /// 0 until it is registered: what is counted then goes nowhere.
    pub(crate) word: u64,
}

/// How much there is of what comes and goes: all that was added and taken away, on all threads.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UpDownCounter {
    /// 0 until it is registered.
    pub(crate) word: u64,
}

/// How much there is, a whole number: who sets it last counts.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Gauge {
    /// 0 until it is registered.
    pub(crate) word: u64,
}

/// How much there is: who sets it last counts.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FloatGauge {
    /// 0 until it is registered.
    pub(crate) word: u64,
}

/// A text of up to 240 bytes: a version, a state, the name of a leader.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Text {
    /// 0 until it is registered.
    pub(crate) word: u64,
}

/// Counts whole numbers by their size, at most 1.08 % off; their count, sum, least and greatest are
/// exact. Times are nanoseconds.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Histogram {
    /// 0 until it is registered.
    pub(crate) word: u64,
}

/// Operations that have begun and have not ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct InFlight {
    /// 0 until it is registered.
    pub(crate) word: u64,
}

/// A sign of life: how often it came, and when it last did.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Heartbeat {
    /// 0 until it is registered.
    pub(crate) word: u64,
}

/// The value of a tag, made beforehand: a number that stands for a text. Zero says nothing.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Tag {
    /// The number.
    pub(crate) word: u32,
}

/// An operation that has begun; zeros are none. Do not end two copies of one.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Operation {
    /// The library's own.
    pub(crate) words: [u64; 4],
}

/// A moment, to tell how long something took.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch {
    /// The library's own.
    pub(crate) start: u64,
}

/// Where a thread counts, for the functions of this header; the library fills it in.
#[repr(C)]
pub(crate) struct Lane {
    /// Its first byte.
    pub(crate) base: *mut c_char,
    /// Cells below this have room; 0 where there is no lane.
    pub(crate) end: usize,
}
