//! Tests of statistics.
