//! A time-series store whose datum is the histogram.
#![forbid(unsafe_code)]

mod index;
