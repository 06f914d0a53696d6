//! The prometheus format.
