//! Integration tests of `codecs`: golden files of every format, and past fuzz findings.

mod checks;
mod circllhist;
mod ddsketch;
mod frame_text;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod hdr;
mod hdr_damage;
mod hlog;
mod otlp;
#[path = "../../../hist/tests/it/page.rs"]
mod page;
mod prometheus;
mod prometheus_page;
mod regressions;
