//! The crate from outside.

