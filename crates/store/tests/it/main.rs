//! The store from outside.

mod basics;
#[path = "../../../journal/tests/it/dying.rs"]
mod dying;
mod flips;
mod full;
mod life;
mod power;
mod world;
