//! The store from outside.

mod basics;
mod copies;
#[path = "../../../journal/tests/it/dying.rs"]
mod dying;
mod full;
mod life;
mod power;
mod world;
