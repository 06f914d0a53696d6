//! Integration tests of `codecs`: golden files of every format, and past fuzz findings.

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
