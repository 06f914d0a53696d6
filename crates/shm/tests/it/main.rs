//! One binary for all of the crate's integration tests.

mod layout;
mod processes;
mod recording;
