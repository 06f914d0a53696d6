//! The circllhist format.
