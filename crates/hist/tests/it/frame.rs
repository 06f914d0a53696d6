//! Tests of frame.
