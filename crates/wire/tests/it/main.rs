//! Integration tests of the packet observer.

mod both_ends;
mod capture_file;
mod checks;
mod conversation;
mod datagrams;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod invariants;
mod key_log;
mod live_capture;
mod live_ends;
mod many_connections;
mod recordings;
mod scenarios;
mod tls_library;
mod tls_sessions;
