//! Watches whether new data finds space: reports when it no longer does and when it does again, and
//! bounds a stop with a full disk.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::intake_state::lock;

/// How long a rejected batch counts as a lack of space, unless one of its size is accepted: large
/// batches are rejected while small ones still fit.
const REFUSAL_LASTS: Duration = Duration::from_secs(15);

/// State of the watch.
#[derive(Debug, Default)]
pub(crate) struct SpaceMonitor {
    refusal: Mutex<Option<SpaceRefusal>>,
    /// Since when the lack of space is reported.
    reported: Mutex<Option<Instant>>,
    /// When a stop no longer waits for space.
    stop_by: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct SpaceRefusal {
    at: Instant,
    /// Size of the batch; 0 if no batch would be accepted.
    bytes: usize,
    reason: String,
}

impl SpaceMonitor {
    /// Records that a batch found no space.
    pub(crate) fn record_refusal(&self, bytes: usize, reason: &str) {
        let reason = reason.to_owned();
        *lock(&self.refusal) = Some(SpaceRefusal { at: Instant::now(), bytes, reason });
    }

    /// Records that a batch was accepted.
    pub(crate) fn record_accepted(&self, bytes: usize) {
        lock(&self.refusal).take_if(|refusal| refusal.bytes <= bytes);
    }

    /// The error for the sender: permanent once a stop no longer waits, so that no source retries.
    pub(crate) fn without_retry_at_stop(&self, error: Error) -> Error {
        match error {
            Error::Full { reason, .. } if self.has_given_up() => {
                Error::JournalFailed(format!("topdeck is stopping: {reason}"))
            }
            other => other,
        }
    }

    /// The reason of a recent rejection.
    pub(crate) fn recent_refusal(&self) -> Option<String> {
        let refusal = lock(&self.refusal);
        let refusal = refusal.as_ref()?;
        (refusal.at.elapsed() < REFUSAL_LASTS).then(|| refusal.reason.clone())
    }

    /// The log line for the state `problem` of the journal in `dir`, if it has changed.
    pub(crate) fn log_line(&self, problem: Option<&str>, dir: &Path) -> Option<String> {
        let (mut reported, dir) = (lock(&self.reported), dir.display());
        match (problem, *reported) {
            (Some(problem), None) => {
                *reported = Some(Instant::now());
                Some(format!(
                    "cannot store new data: {problem}; senders are asked to retry (HTTP 429), and \
                     /health answers 503; free disk space of {dir}{}",
                    // Only a limit can be raised, which the reason names.
                    if problem.contains("limit") { ", or raise the limit" } else { "" }
                ))
            }
            (None, Some(since)) => {
                *reported = None;
                let seconds = since.elapsed().as_secs();
                let text = "new data is stored again: there was no space";
                Some(format!("{text} for {seconds} s in {dir}"))
            }
            _ => None,
        }
    }

    /// A stop waits for space at most this long from now.
    pub(crate) fn begin_stop(&self, patience: Duration) {
        lock(&self.stop_by).get_or_insert(Instant::now() + patience);
    }

    /// Whether a stop no longer waits for space.
    pub(crate) fn has_given_up(&self) -> bool {
        lock(&self.stop_by).is_some_and(|by| Instant::now() >= by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Error {
        Error::Full { reason: "no space left".to_owned(), retry_after: Duration::from_secs(5) }
    }

    #[test]
    fn the_log_says_once_when_the_disk_fills_and_once_when_it_frees() {
        let (monitor, dir) = (SpaceMonitor::default(), Path::new("/data/store"));
        assert_eq!(monitor.log_line(None, dir), None);
        let line = monitor.log_line(Some("no space left"), dir).unwrap();
        assert!(line.starts_with("cannot store new data: no space left; "), "{line}");
        assert!(line.ends_with("free disk space of /data/store"), "{line}");
        assert_eq!(monitor.log_line(Some("no space left"), dir), None);
        let line = monitor.log_line(None, dir).unwrap();
        assert!(line.starts_with("new data is stored again: there was no space for "), "{line}");
        assert!(line.ends_with(" s in /data/store"), "{line}");
        assert_eq!(monitor.log_line(None, dir), None);
        let line = monitor.log_line(Some("segments use 9 bytes, limit 8"), dir).unwrap();
        assert!(line.ends_with("of /data/store, or raise the limit"), "{line}");
    }

    #[test]
    fn a_rejected_batch_is_a_lack_of_space_and_permanent_once_a_stop_gave_up() {
        let monitor = SpaceMonitor::default();
        assert_eq!(monitor.recent_refusal(), None);
        monitor.record_refusal(100, "no space left");
        monitor.record_accepted(99);
        assert_eq!(monitor.recent_refusal().as_deref(), Some("no space left"));
        monitor.record_accepted(100);
        assert_eq!(monitor.recent_refusal(), None);
        assert!(monitor.without_retry_at_stop(full()).is_retryable());
        monitor.begin_stop(Duration::from_secs(3_600));
        assert!(monitor.without_retry_at_stop(full()).is_retryable());
        let monitor = SpaceMonitor::default();
        monitor.begin_stop(Duration::ZERO);
        let error = monitor.without_retry_at_stop(full());
        assert!(!error.is_retryable());
        assert_eq!(error.to_string(), "topdeck is stopping: no space left");
    }
}
