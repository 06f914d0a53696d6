//! PromQL, as of Prometheus 3.15.

pub mod quantile;
