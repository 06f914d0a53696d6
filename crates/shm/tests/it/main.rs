//! One binary for all of the crate's integration tests.

mod recording;
