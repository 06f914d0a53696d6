//! The block format.
