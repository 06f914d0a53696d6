//! Integration tests of `hist`: golden vectors of every codec and statistics against sorted samples.

mod big;
mod cases;
mod circllhist;
mod corrected;
mod ddsketch;
mod distance;
mod frame;
mod hdr;
mod merge;
mod model;
mod otlp;
mod prometheus;
mod regressions;
mod soak;
mod statistics;
