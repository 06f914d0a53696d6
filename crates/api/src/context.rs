//! What all handlers share.

use std::sync::Arc;

use intake::Intake;

use crate::desk::{Desk, DeskSettings};

/// What all handlers share; cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    /// The way in, and the store behind it.
    pub intake: Arc<Intake>,
    /// Where questions are taken.
    pub desk: Arc<Desk>,
}

impl Context {
    /// Of a way in.
    pub fn new(intake: Arc<Intake>, desk: DeskSettings) -> Context {
        let desk = Arc::new(Desk::new(desk, Arc::clone(&intake)));
        Context { intake, desk }
    }
}
