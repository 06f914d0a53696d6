//! Tests of ddsketch.
