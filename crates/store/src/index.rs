//! Which series there are, and which of them a selector picks.
/// placeholder
#[derive(Debug, thiserror::Error)]
#[error("limit")]
pub struct Refused;
