//! Tests from outside: the header as C sees it, and programs in C.

#[path = "../../../shm/tests/it/folder.rs"]
mod folder;
mod header;
mod programs;
