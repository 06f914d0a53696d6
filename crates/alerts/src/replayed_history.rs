//! History of alerts of rules that were evaluated over the past, before the role started: a data
//! directory whose samples are of a time in which no server ran has the changes of that time too.

use std::path::Path;
use std::sync::Arc;

use disk::Disk;
use rules::EvaluatedGroup;

use crate::alert_history::AlertHistory;
use crate::error::{AlertsError, Result};
use crate::history_entry::HistoryEntry;
use crate::history_recorder::HistoryRecorder;

/// Changes of state, as a server that evaluated the groups would have recorded them.
#[derive(Debug, Default)]
pub struct ReplayedHistory {
    recorder: HistoryRecorder,
    entries: Vec<HistoryEntry>,
}

impl ReplayedHistory {
    /// Records the changes of a group since it was last recorded. Groups may follow each other.
    pub fn record(&mut self, group: &EvaluatedGroup, time_ns: i64) {
        self.entries.extend(self.recorder.of_group(group, time_ns));
    }

    /// Adds the changes of other groups.
    pub fn merge(&mut self, other: ReplayedHistory) {
        self.entries.extend(other.entries);
    }

    /// Adds the changes to the history of a data directory, by time. No role may use it.
    pub fn write(mut self, disk: Arc<dyn Disk>, data: &Path) -> Result<()> {
        model::sort::by_key(&mut self.entries, |entry| entry.time_ns);
        let (history, problem) = AlertHistory::open(disk, data);
        match problem {
            Some(problem) => Err(AlertsError::History(problem)),
            None => history.append(self.entries).map_err(AlertsError::History),
        }
    }
}

#[cfg(test)]
mod tests {
    use sim::SimDisk;

    use super::*;
    use crate::test_group::{evaluate, test_group};

    const SECOND: i64 = 1_000_000_000;
    const DATA: &str = "/data";

    /// Evaluates a rule that holds between two times, in seconds.
    fn replay(history: &mut ReplayedHistory, name: &str, (from, to): (i64, i64)) {
        let text = format!(
            "groups:\n- name: {name}\n  rules:\n  - alert: {name}\n    \
             expr: (vector(time()) >= {from}) < {to}\n    for: 1m\n"
        );
        let mut group = test_group("rules.yml", &text);
        for time_ns in (0..=600).step_by(60).map(|second| second * SECOND) {
            evaluate(&mut group, time_ns);
            history.record(&group, time_ns);
        }
    }

    /// A page with a history of alerts, and a command line that said there was none.
    #[test]
    fn alerts_of_a_past_without_a_server_are_in_the_history() {
        let disk = SimDisk::new(1);
        disk.process().create_dir(Path::new(DATA)).expect("a directory");
        let mut history = ReplayedHistory::default();
        replay(&mut history, "Late", (240, 480));
        let mut of_thread = ReplayedHistory::default();
        replay(&mut of_thread, "Early", (120, 360));
        history.merge(of_thread);
        history.write(Arc::new(disk.process()), Path::new(DATA)).expect("stored");
        let (history, problem) = AlertHistory::open(Arc::new(disk.process()), Path::new(DATA));
        let changes = history.read().expect("it is readable");
        let changes: Vec<_> = changes
            .iter()
            .map(|entry| {
                (entry.number, entry.time_ns / SECOND, &entry.name[..], entry.event.name())
            })
            .collect();
        let expected = [
            (1, 120, "Early", "pending"),
            (2, 180, "Early", "firing"),
            (3, 240, "Late", "pending"),
            (4, 300, "Late", "firing"),
            (5, 360, "Early", "resolved"),
            (6, 480, "Late", "resolved"),
        ];
        assert_eq!((problem, &changes[..]), (None, &expected[..]));
    }
}
