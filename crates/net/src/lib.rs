//! Network connections: TLS and HTTP client with phase timings, and the delays of retries.
#![forbid(unsafe_code)]

mod backoff;
mod bearer;
mod certificate;
pub mod dial;
mod endpoint;
pub mod forward_protocol;
mod lookup;
mod public_key_pin;
pub mod signature;
pub mod tls;

pub use backoff::ExponentialBackoff;
pub use bearer::bearer;
pub use certificate::names;
pub use endpoint::{Endpoint, EndpointError};
pub use public_key_pin::PublicKeyPin;
