//! Recent parse errors.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Number of messages retained.
const MESSAGES_MAX: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct RecentErrors(Mutex<VecDeque<String>>);

impl RecentErrors {
    pub(crate) fn push(&self, message: String) {
        let mut errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() == MESSAGES_MAX {
            errors.pop_front();
        }
        errors.push_back(message);
    }

    pub(crate) fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
