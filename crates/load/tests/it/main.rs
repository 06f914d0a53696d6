//! What the crate promises, held from outside.

mod calibration;
mod freeze;
mod hostile;
mod servers;
mod sessions;
mod stopped;
