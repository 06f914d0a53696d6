//! Batches to other sites: a cursor for each.
#![forbid(unsafe_code)]
