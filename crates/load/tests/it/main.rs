//! What the crate promises, held from outside.

mod calibration;
mod freeze;
mod frozen;
mod hostile;
mod plain;
mod seconds;
mod servers;
mod sessions;
mod stopped;
