//! Integration tests with this machine's clock.

mod bounds;
mod fork;
mod order;
mod panics;
mod wall;
