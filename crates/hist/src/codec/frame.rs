//! The frame format.
