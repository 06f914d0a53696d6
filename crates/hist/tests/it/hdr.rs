//! Tests of hdr.
