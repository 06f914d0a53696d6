//! Connections of roles: TLS, and dialling with the time of each phase.
#![forbid(unsafe_code)]

mod certificate;
pub mod tls;

pub use certificate::names;
