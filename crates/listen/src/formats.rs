//! The formats that are listened to, one file each: a format is added by its file and its row.

mod graphite;
mod statsd;

use crate::line_format::LineFormatRow;

pub use graphite::Graphite;
pub use statsd::Statsd;

/// All formats, in the order in which they are started.
pub(crate) const FORMATS: &[LineFormatRow] =
    &[LineFormatRow::of::<Statsd>(), LineFormatRow::of::<Graphite>()];

/// Their tables of the settings file.
pub(crate) const TABLES: [&str; FORMATS.len()] = {
    let mut tables = [""; FORMATS.len()];
    let mut index = 0;
    while index < FORMATS.len() {
        tables[index] = FORMATS[index].name;
        index += 1;
    }
    tables
};
