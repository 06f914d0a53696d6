//! The crate from outside.

mod basics;
