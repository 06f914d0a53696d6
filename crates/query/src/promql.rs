//! PromQL, as of Prometheus 3.15.
