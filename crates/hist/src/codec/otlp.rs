//! The otlp format.
