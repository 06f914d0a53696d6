//! The way in from outside.

mod basics;
mod books;
#[path = "../../../journal/tests/it/dying.rs"]
mod dying;
mod layout;
mod limits;
mod room;
mod world;
