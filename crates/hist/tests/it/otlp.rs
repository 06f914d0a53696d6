//! Tests of otlp.
