//! Connections of roles: TLS, and dialling with the time of each phase.
#![forbid(unsafe_code)]

mod bearer;
mod certificate;
pub mod dial;
mod lookup;
pub mod parcels;
pub mod signature;
mod target;
pub mod tls;

pub use bearer::bearer;
pub use certificate::names;
pub use target::{Target, TargetError};
