//! What all handlers share.

use std::sync::Arc;

use intake::Intake;

/// What all handlers share; cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    /// The way in, and the store behind it.
    pub intake: Arc<Intake>,
}
