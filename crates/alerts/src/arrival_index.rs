//! Which rules read which series, and for which of them rows have arrived.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::SeriesId;

use crate::worker_control::WorkerControl;

/// Series that no rule reads and that are remembered; then all are forgotten.
const IGNORED_MAX: usize = 1 << 20;

/// A rule: index of its group, and in it.
pub(crate) type RulePlace = (usize, usize);

/// Rules by series. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ArrivalIndex {
    state: Arc<Mutex<ArrivalState>>,
    control: Arc<WorkerControl>,
}

#[derive(Debug, Default)]
struct ArrivalState {
    /// Whether a rule reads series.
    is_active: bool,
    rules: HashMap<SeriesId, Vec<RulePlace>>,
    ignored: HashSet<SeriesId>,
    /// Series that arrived and are in neither of them.
    unknown: HashSet<SeriesId>,
    arrived: BTreeSet<RulePlace>,
}

impl ArrivalIndex {
    pub(crate) fn new(control: Arc<WorkerControl>) -> ArrivalIndex {
        ArrivalIndex { state: Arc::default(), control }
    }

    /// Whether arrivals matter to a rule.
    pub(crate) fn is_active(&self) -> bool {
        self.lock().is_active
    }

    /// Forgets everything: the rules are other ones.
    pub(crate) fn reset(&self, is_active: bool) {
        *self.lock() = ArrivalState { is_active, ..ArrivalState::default() };
    }

    /// Notes that rows of some series arrived.
    pub(crate) fn note(&self, series: &[SeriesId]) {
        let mut state = self.lock();
        let state = &mut *state;
        let before = state.arrived.len() + state.unknown.len();
        for id in series {
            match state.rules.get(id) {
                Some(places) => state.arrived.extend(places.iter().copied()),
                None if state.ignored.contains(id) => {}
                None => drop(state.unknown.insert(*id)),
            }
        }
        if state.arrived.len() + state.unknown.len() > before {
            self.control.wake();
        }
    }

    /// Whether there is something for [`ArrivalIndex::take`], and whether a series is unknown.
    pub(crate) fn pending(&self) -> (bool, bool) {
        let state = self.lock();
        (!state.arrived.is_empty(), !state.unknown.is_empty())
    }

    /// Replaces the rules of all series. The unknown ones count as arrived.
    pub(crate) fn replace(&self, rules: HashMap<SeriesId, Vec<RulePlace>>) {
        let mut state = self.lock();
        state.rules = rules;
        if state.ignored.len() > IGNORED_MAX {
            state.ignored.clear();
        }
        for id in std::mem::take(&mut state.unknown) {
            match state.rules.get(&id).cloned() {
                Some(places) => state.arrived.extend(places),
                None => drop(state.ignored.insert(id)),
            }
        }
    }

    /// Rules whose rows have arrived since the last call, by group.
    pub(crate) fn take(&self) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut groups: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (group, rule) in std::mem::take(&mut self.lock().arrived) {
            groups.entry(group).or_default().insert(rule);
        }
        groups
    }

    fn lock(&self) -> MutexGuard<'_, ArrivalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_those_of_the_rules_that_read_the_series() {
        let index = ArrivalIndex::new(Arc::default());
        let id = |byte: u8| SeriesId([byte; 16]);
        index.note(&[id(1), id(2)]);
        assert_eq!(index.pending(), (false, true));
        index.replace(HashMap::from([(id(1), vec![(0, 3), (1, 0)]), (id(4), vec![(0, 3)])]));
        let taken = BTreeMap::from([(0, BTreeSet::from([3])), (1, BTreeSet::from([0]))]);
        assert_eq!(index.take(), taken);
        // Nobody reads it, and this is remembered.
        index.note(&[id(2)]);
        assert_eq!(index.pending(), (false, false));
        index.note(&[id(4), id(1)]);
        assert_eq!(index.pending(), (true, false));
        index.reset(false);
        assert_eq!((index.pending(), index.is_active()), ((false, false), false));
    }
}
