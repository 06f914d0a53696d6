//! Tests of prometheus.
