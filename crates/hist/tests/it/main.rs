//! Integration tests of `hist`: golden vectors of every codec and statistics against sorted samples.

mod circllhist;
mod ddsketch;
mod frame;
mod hdr;
mod otlp;
mod prometheus;
mod statistics;
