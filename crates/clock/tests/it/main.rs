//! The clock of this machine.

mod bounds;
mod fork;
mod order;
mod panics;
mod wall;
