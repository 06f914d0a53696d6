//! Tests from outside: the header as C sees it, and programs in C.

mod header;
mod programs;
#[path = "../../../shm/tests/it/test_dir.rs"]
mod test_dir;
