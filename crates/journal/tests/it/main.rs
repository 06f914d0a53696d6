//! The crate from outside.

mod basics;
mod golden;
mod layout;
