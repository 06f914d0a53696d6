//! The hdr format.
