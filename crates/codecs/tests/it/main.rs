//! Integration tests of `codecs`: golden vectors of every format, and what fuzzing once broke.

mod checks;
mod circllhist;
mod ddsketch;
mod frame_text;
mod fuzz_regressions;
mod hdr;
mod otlp;
#[path = "../../../hist/tests/it/page.rs"]
mod page;
mod prometheus;
mod regressions;
