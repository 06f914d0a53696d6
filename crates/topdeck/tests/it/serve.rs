//! `topdeck serve` and `topdeck agent`, as processes.

pub(crate) mod client;
mod command;
pub(crate) mod deck;
mod forward;
mod link;
mod loss;
mod matrix;
mod network;
mod robust;
mod sender;
