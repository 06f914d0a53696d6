//! What the crate promises, held from outside.

mod freeze;
mod servers;
mod sessions;
