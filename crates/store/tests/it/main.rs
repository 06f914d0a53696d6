//! The store from outside.

mod basics;
mod copies;
mod world;
