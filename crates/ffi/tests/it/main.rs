//! The crate from outside: the header as C sees it, and programs in C.

mod header;
mod programs;
