//! Integration tests in one binary.

mod checks;
mod folder;
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
