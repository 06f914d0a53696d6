//! Integration tests of the load generator.

mod calibration;
mod checks;
mod codecs;
mod commands;
mod coordinated_omission;
mod coordinated_omission_protocols;
mod fixture;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod hostile;
mod hostile_server;
mod memory_cache;
mod protocols;
mod scheduling;
mod seconds;
mod servers;
mod stopped_generator;
