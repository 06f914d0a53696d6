//! The store from outside.

mod basics;
mod model;
mod world;
