//! Integration tests in one binary.

mod checks;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod golden;
mod hostile;
mod jvm;
mod layout;
#[path = "../../../hist/tests/it/page.rs"]
mod page;
mod processes;
mod recording;
mod table;
mod test_dir;
