//! Checks of the crate from outside.

mod selectors;
