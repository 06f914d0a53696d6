//! Which rules read which series, and for which of them rows have arrived.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::SeriesId;

use crate::worker_control::WorkerControl;

/// Series that no rule reads and that are remembered; then all are forgotten.
const IGNORED_MAX: usize = 1 << 20;

/// The first place of a query.
const FIRST_QUERY: RulePlace = RulePlace { is_query: true, group: 0, rule: 0 };

/// A rule. Queries follow the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RulePlace {
    pub(crate) is_query: bool,
    /// Index of its group.
    pub(crate) group: usize,
    /// Index in the group.
    pub(crate) rule: usize,
}

/// What arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingArrivals {
    /// Whether a rule with a selector has rows.
    pub(crate) has_selected: bool,
    /// Whether it is not known who reads a series.
    pub(crate) has_unknown: bool,
    /// Queries that have rows.
    pub(crate) queries: Vec<RulePlace>,
}

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
    /// Whether a rule reads other series than `rules` has.
    is_outdated: bool,
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

    /// What has arrived.
    pub(crate) fn pending(&self) -> PendingArrivals {
        let state = self.lock();
        let queries: Vec<RulePlace> = state.arrived.range(FIRST_QUERY..).copied().collect();
        PendingArrivals {
            has_selected: state.arrived.len() > queries.len(),
            has_unknown: !state.unknown.is_empty() || state.is_outdated,
            queries,
        }
    }

    /// Notes that a rule reads other series than before: nothing is known to be ignored.
    pub(crate) fn mark_outdated(&self) {
        let mut state = self.lock();
        state.ignored.clear();
        state.is_outdated = true;
    }

    /// Replaces the rules of all series. The unknown series count as arrived, and for rules whose
    /// series nobody knows, any.
    pub(crate) fn replace(
        &self,
        rules: HashMap<SeriesId, Vec<RulePlace>>,
        unread: impl IntoIterator<Item = RulePlace>,
    ) {
        let mut state = self.lock();
        state.rules = rules;
        state.is_outdated = false;
        if state.ignored.len() > IGNORED_MAX {
            state.ignored.clear();
        }
        state.arrived.extend(unread);
        for id in std::mem::take(&mut state.unknown) {
            match state.rules.get(&id).cloned() {
                Some(places) => state.arrived.extend(places),
                None => drop(state.ignored.insert(id)),
            }
        }
    }

    /// Rules with a selector whose rows have arrived since the last call, by group.
    pub(crate) fn take_selected(&self) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut state = self.lock();
        let queries = state.arrived.split_off(&FIRST_QUERY);
        let selected = std::mem::replace(&mut state.arrived, queries);
        drop(state);
        by_group(selected)
    }

    /// The same for these queries.
    pub(crate) fn take_queries(&self, queries: &[RulePlace]) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut state = self.lock();
        let taken = queries.iter().copied().filter(|place| state.arrived.remove(place));
        by_group(taken)
    }

    fn lock(&self) -> MutexGuard<'_, ArrivalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn by_group(places: impl IntoIterator<Item = RulePlace>) -> BTreeMap<usize, BTreeSet<usize>> {
    let mut groups: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for RulePlace { group, rule, .. } in places {
        groups.entry(group).or_default().insert(rule);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> SeriesId {
        SeriesId([byte; 16])
    }

    fn selected(group: usize, rule: usize) -> RulePlace {
        RulePlace { is_query: false, group, rule }
    }

    fn query(group: usize, rule: usize) -> RulePlace {
        RulePlace { is_query: true, group, rule }
    }

    fn pending(has_selected: bool, has_unknown: bool, queries: &[RulePlace]) -> PendingArrivals {
        PendingArrivals { has_selected, has_unknown, queries: queries.to_vec() }
    }

    #[test]
    fn arrivals_are_those_of_the_rules_that_read_the_series() {
        let index = ArrivalIndex::new(Arc::default());
        index.note(&[id(1), id(2)]);
        assert_eq!(index.pending(), pending(false, true, &[]));
        let rules = [
            (id(1), vec![selected(0, 3), selected(1, 0)]),
            (id(4), vec![selected(0, 3), query(0, 1)]),
        ];
        index.replace(HashMap::from(rules), []);
        let taken = BTreeMap::from([(0, BTreeSet::from([3])), (1, BTreeSet::from([0]))]);
        assert_eq!(index.take_selected(), taken);
        // Nobody reads it, and this is remembered.
        index.note(&[id(2)]);
        assert_eq!(index.pending(), PendingArrivals::default());
        index.note(&[id(4), id(1)]);
        assert_eq!(index.pending(), pending(true, false, &[query(0, 1)]));
        index.reset(false);
        assert_eq!((index.pending(), index.is_active()), (PendingArrivals::default(), false));
    }

    #[test]
    fn queries_are_taken_apart_from_rules_with_a_selector() {
        let index = ArrivalIndex::new(Arc::default());
        let readers = vec![query(0, 0), query(2, 0), selected(1, 1)];
        index.replace(HashMap::from([(id(1), readers)]), []);
        index.note(&[id(1)]);
        assert_eq!(index.pending(), pending(true, false, &[query(0, 0), query(2, 0)]));
        assert_eq!(index.take_selected(), BTreeMap::from([(1, BTreeSet::from([1]))]));
        let taken = index.take_queries(&[query(0, 0), query(7, 7)]);
        assert_eq!(taken, BTreeMap::from([(0, BTreeSet::from([0]))]));
        assert_eq!(index.pending(), pending(false, false, &[query(2, 0)]));
    }

    #[test]
    fn rows_of_series_that_a_query_reads_only_now_are_not_ignored() {
        let index = ArrivalIndex::new(Arc::default());
        index.note(&[id(1)]);
        // Nobody knows what the query reads.
        index.replace(HashMap::new(), [query(0, 0)]);
        assert_eq!(index.pending(), pending(false, false, &[query(0, 0)]));
        index.take_queries(&[query(0, 0)]);
        index.mark_outdated();
        assert_eq!(index.pending(), pending(false, true, &[]));
        index.note(&[id(1)]);
        index.replace(HashMap::from([(id(1), vec![query(0, 0)])]), []);
        assert_eq!(index.pending(), pending(false, false, &[query(0, 0)]));
    }
}
