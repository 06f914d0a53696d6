//! The crate from outside.

mod basics;
mod found;
mod model;
mod world;
mod golden;
mod layout;
