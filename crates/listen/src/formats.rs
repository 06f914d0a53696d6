//! Table of line formats. A format is one file and one row.

mod collectd;
mod graphite;
mod statsd;

use crate::line_format::LineFormatRow;

pub use collectd::Collectd;
pub use graphite::Graphite;
pub use statsd::Statsd;

/// All formats, in start order.
pub(crate) const FORMATS: &[LineFormatRow] = &[
    // A comment: rustfmt then writes one row per line.
    LineFormatRow::of::<Statsd>(),
    LineFormatRow::of::<Graphite>(),
    LineFormatRow::of::<Collectd>(),
];

/// Settings tables of the formats.
pub(crate) const TABLES: [&str; FORMATS.len()] = {
    let mut tables = [""; FORMATS.len()];
    let mut index = 0;
    while index < FORMATS.len() {
        tables[index] = FORMATS[index].name;
        index += 1;
    }
    tables
};
