//! The last messages about what could not be read, for who looks.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Messages that are kept.
const KEPT_MAX: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<VecDeque<String>>);

impl Troubles {
    pub(crate) fn push(&self, message: String) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(message);
    }

    pub(crate) fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
