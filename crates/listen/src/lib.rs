//! What sends itself: StatsD, Graphite.
#![forbid(unsafe_code)]
