//! The way in from outside.

mod basics;
mod books;
mod damage;
#[path = "../../../journal/tests/it/dying.rs"]
mod dying;
mod layout;
mod room;
mod world;
