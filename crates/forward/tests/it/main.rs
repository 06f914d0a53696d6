//! Integration tests: agents with real journals, and remotes with network and process faults.

mod agent;
mod clock;
mod drain;
mod faults;
mod gaps;
mod keys;
mod panics;
mod remote;
