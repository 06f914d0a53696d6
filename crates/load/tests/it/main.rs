//! What the crate promises, held from outside.

mod calibration;
mod checks;
mod codecs;
mod commands;
mod freeze;
mod frozen;
mod fuzzed;
mod hostile;
mod plain;
mod protocols;
mod seconds;
mod servers;
mod steady;
mod stopped;
