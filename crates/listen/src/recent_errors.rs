//! Recent errors of a listener, such as lines that cannot be parsed.
//!
//! They are part of the status. The log gets the first, the 10th, the 100th and so on: a sender
//! with a wrong format repeats it for each line.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use intake::{LogFn, LogLevel};

/// Number of messages retained.
const MESSAGES_MAX: usize = 32;

pub(crate) struct RecentErrors {
    source: &'static str,
    log: LogFn,
    messages: Mutex<ErrorMessages>,
}

#[derive(Debug, Default)]
struct ErrorMessages {
    count: u64,
    recent: VecDeque<String>,
}

impl fmt::Debug for RecentErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentErrors").field("messages", &self.messages).finish_non_exhaustive()
    }
}

impl RecentErrors {
    pub(crate) fn new(source: &'static str, log: LogFn) -> RecentErrors {
        RecentErrors { source, log, messages: Mutex::default() }
    }

    pub(crate) fn push(&self, message: String) {
        let count = {
            let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
            if messages.recent.len() == MESSAGES_MAX {
                messages.recent.pop_front();
            }
            messages.recent.push_back(message.clone());
            messages.count = messages.count.saturating_add(1);
            messages.count
        };
        let source = self.source;
        match count {
            1 => (self.log)(LogLevel::Warn, &format!("{source}: {message}")),
            _ if is_power_of_ten(count) => {
                let line = format!("{source}: {message} ({count} such messages since the start)");
                (self.log)(LogLevel::Warn, &line);
            }
            _ => {}
        }
    }

    /// The messages retained, oldest first.
    pub(crate) fn list(&self) -> Vec<String> {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.recent.iter().cloned().collect()
    }
}

fn is_power_of_ten(count: u64) -> bool {
    count.checked_ilog10().is_some_and(|power| 10u64.pow(power) == count)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn repeated_messages_do_not_flood_the_log() {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&lines);
        let log: LogFn = Arc::new(move |_, line| log.lock().unwrap().push(line.to_owned()));
        let errors = RecentErrors::new("statsd", log);
        (0..250).for_each(|n| errors.push(format!("line {n}")));
        let lines = lines.lock().unwrap();
        let expected = [
            "statsd: line 0",
            "statsd: line 9 (10 such messages since the start)",
            "statsd: line 99 (100 such messages since the start)",
        ];
        assert_eq!(*lines, expected);
        assert_eq!(errors.list().len(), MESSAGES_MAX);
        assert_eq!(errors.list()[0], "line 218");
    }
}
