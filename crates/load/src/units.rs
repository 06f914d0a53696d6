//! Time units of user input.

/// Name and nanoseconds. Longer suffixes come before shorter ones.
pub(crate) const UNITS: [(&str, i128); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("min", 60_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("s", 1_000_000_000),
];
