//! `topdeck serve` and `topdeck agent`, as processes.

mod client;
mod deck;
mod forward;
mod link;
mod matrix;
mod sender;
