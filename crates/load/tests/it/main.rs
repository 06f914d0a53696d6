//! What the crate promises, held from outside.

mod calibration;
mod commands;
mod freeze;
mod frozen;
mod hostile;
mod plain;
mod servers;
mod sessions;
mod stopped;
