//! Integration tests of the load generator.

mod calibration;
mod checks;
mod codecs;
mod commands;
mod coordinated_omission;
mod coordinated_omission_protocols;
mod fixture;
mod fuzz_regressions;
mod hostile;
mod memory_cache;
mod protocols;
mod scheduling;
mod seconds;
mod servers;
mod stopped_generator;
