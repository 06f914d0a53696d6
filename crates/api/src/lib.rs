//! The HTTP face: ingest, query, the API of Prometheus, the live stream.
#![forbid(unsafe_code)]
