//! Tests of circllhist.
