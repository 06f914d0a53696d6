//! Integration tests of `hist`: golden vectors of every codec and statistics against sorted samples.

mod accumulator;
mod big;
mod block;
mod block_reference;
mod cases;
mod checks;
mod circllhist;
mod corrected;
mod ddsketch;
mod distance;
mod frame;
mod fuzz_regressions;
mod golden;
mod hdr;
mod merge;
mod model;
mod oracle;
mod otlp;
mod page;
mod prometheus;
mod regressions;
mod soak;
mod statistics;
