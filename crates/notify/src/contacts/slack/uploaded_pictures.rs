//! Files at Slack of messages that are not sent yet, so that a retry does not upload them again.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::notification::NotificationKey;

/// Maximum number of files; of more, the oldest are uploaded again.
const FILES_MAX: usize = 1_000;

/// Ids of files by message, in memory: after a restart, they are uploaded again.
#[derive(Debug, Default)]
pub(super) struct UploadedPictures(Mutex<VecDeque<(NotificationKey, String)>>);

impl UploadedPictures {
    /// The file of a message.
    pub(super) fn find(&self, message: &NotificationKey) -> Option<String> {
        let files = self.lock();
        files.iter().find(|(key, _)| key == message).map(|(_, file)| file.clone())
    }

    /// Adds the file of a message.
    pub(super) fn add(&self, message: &NotificationKey, file: &str) {
        let mut files = self.lock();
        files.truncate(FILES_MAX - 1);
        files.push_front((message.clone(), file.to_owned()));
    }

    /// Forgets the file of a message that was sent.
    pub(super) fn remove(&self, message: &NotificationKey) {
        self.lock().retain(|(key, _)| key != message);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(NotificationKey, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_latest_messages_are_known_until_these_are_sent() {
        let key =
            |transition| NotificationKey { alert_id: "a1".to_owned(), transition, reminder: 0 };
        let files = UploadedPictures::default();
        for transition in 0..=FILES_MAX as u64 {
            files.add(&key(transition), &format!("F{transition}"));
        }
        assert_eq!(files.find(&key(0)), None);
        assert_eq!(files.find(&key(1)).as_deref(), Some("F1"));
        files.remove(&key(1));
        assert_eq!(files.find(&key(1)), None);
        assert_eq!(files.find(&key(2)).as_deref(), Some("F2"));
    }
}
