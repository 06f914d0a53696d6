//! Connections of roles: TLS, and dialling with the time of each phase.
#![forbid(unsafe_code)]

mod client_tls;
pub mod dial;
pub mod parcels;
mod target;

pub use client_tls::{ClientTls, ClientTlsError};
pub use target::{Target, TargetError};
