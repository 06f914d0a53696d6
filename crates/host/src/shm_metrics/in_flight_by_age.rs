//! In-flight operations by age.

use std::collections::BTreeMap;

use shm::snapshot::InFlightSnapshot;

/// Values of the label `age` and their upper bounds.
pub(crate) const AGE_BUCKETS: [(&str, u64); 4] = [
    ("0s-1s", 1_000_000_000),
    ("1s-10s", 10_000_000_000),
    ("10s-60s", 60_000_000_000),
    ("60s+", u64::MAX),
];
/// Age of operations that had no slot in the table.
pub(crate) const UNKNOWN_AGE: &str = "unknown";
/// Limit of tag combinations per table; all others are combined with the label `overflow="true"`,
/// as series of shared memory beyond their limit.
const TAGS_MAX: usize = 64;

type TagPairs = Vec<(String, String)>;

/// In-flight operations of one table by tags and age. A combination that was seen once stays with
/// 0, so that its end is reported.
#[derive(Debug, Default)]
pub(crate) struct InFlightByAge(BTreeMap<TagPairs, [Option<u64>; AGE_BUCKETS.len() + 1]>);

impl InFlightByAge {
    /// Counts current operations by tags and age. Returns the age of the oldest in nanoseconds; 0
    /// if there is none.
    pub(crate) fn count(&mut self, found: &InFlightSnapshot, now_ns: u64) -> u64 {
        for count in self.0.values_mut().flatten().flatten() {
            *count = 0;
        }
        for operation in &found.operations {
            let age = now_ns.saturating_sub(operation.start_ns);
            let bucket =
                AGE_BUCKETS.iter().position(|&(_, end)| age < end).unwrap_or(AGE_BUCKETS.len() - 1);
            self.add(operation.tags.clone(), bucket, 1);
        }
        let untracked = found.count_untracked();
        if untracked > 0 {
            self.add(TagPairs::new(), AGE_BUCKETS.len(), untracked);
        }
        let oldest = found.operations.iter().map(|operation| operation.start_ns).min();
        oldest.map_or(0, |start_ns| now_ns.saturating_sub(start_ns))
    }

    fn add(&mut self, mut tags: TagPairs, index: usize, more: u64) {
        if self.0.len() >= TAGS_MAX && !self.0.contains_key(&tags) {
            tags = vec![("overflow".to_owned(), "true".to_owned())];
        }
        let count = &mut self.0.entry(tags).or_default()[index];
        *count = Some(count.unwrap_or(0) + more);
    }

    /// Tags, age, count.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TagPairs, &'static str, u64)> {
        let names = AGE_BUCKETS.iter().map(|&(name, _)| name).chain([UNKNOWN_AGE]);
        self.0.iter().flat_map(move |(tags, counts)| {
            let counted = names.clone().zip(counts);
            counted.filter_map(move |(age, count)| Some((tags, age, (*count)?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use shm::snapshot::OperationSnapshot;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn found(starts: &[(u64, &str)]) -> InFlightSnapshot {
        let operations = starts.iter().map(|&(start_ns, device)| OperationSnapshot {
            start_ns,
            tags: vec![("device".to_owned(), device.to_owned())],
            number: 0,
        });
        let operations: Vec<OperationSnapshot> = operations.collect();
        InFlightSnapshot {
            started: 10,
            ended: 10 - operations.len() as u64,
            untracked: 0,
            operations,
        }
    }

    #[track_caller]
    fn check(flight: &InFlightByAge, expected: &[(&str, &str, u64)]) {
        let told: Vec<_> = flight
            .iter()
            .map(|(tags, age, count)| (tags.first().map_or("", |tag| &*tag.1), age, count))
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn operations_have_an_age_and_ended_ones_are_zero() {
        let mut flight = InFlightByAge::default();
        let now = 100 * SECOND;
        let starts = [(now, "a"), (now - SECOND, "a"), (now - SECOND + 1, "a"), (1, "b")];
        assert_eq!(flight.count(&found(&starts), now), now - 1);
        check(&flight, &[("a", "0s-1s", 2), ("a", "1s-10s", 1), ("b", "60s+", 1)]);
        assert_eq!(flight.count(&found(&[(now - 20 * SECOND, "b")]), now), 20 * SECOND);
        check(
            &flight,
            &[("a", "0s-1s", 0), ("a", "1s-10s", 0), ("b", "10s-60s", 1), ("b", "60s+", 0)],
        );
        assert_eq!(flight.count(&found(&[]), now), 0);
        assert!(flight.iter().all(|(.., count)| count == 0));
    }

    #[test]
    fn untracked_operations_have_no_age() {
        let mut flight = InFlightByAge::default();
        let mut full = found(&[(5, "a")]);
        (full.started, full.ended, full.untracked) = (30, 20, 12);
        flight.count(&full, 10);
        check(&flight, &[("", UNKNOWN_AGE, 9), ("a", "0s-1s", 1)]);
    }

    #[test]
    fn operations_beyond_the_limit_of_tags_are_counted_as_overflow() {
        let mut flight = InFlightByAge::default();
        let names: Vec<String> = (0..1_000).map(|n| format!("d{n:04}")).collect();
        let starts: Vec<_> = names.iter().map(|name| (1, name.as_str())).collect();
        flight.count(&found(&starts[..10]), 2);
        let mut many = found(&[]);
        many.operations = found(&starts[..9]).operations;
        many.operations.extend(starts[9..].chunks(9).flat_map(|some| found(some).operations));
        flight.count(&many, 2);
        assert_eq!(flight.0.len(), TAGS_MAX + 1);
        assert_eq!(flight.iter().map(|(.., count)| count).sum::<u64>(), 1_000);
        let overflow: Vec<_> = flight.iter().filter(|(tags, ..)| tags[0].0 == "overflow").collect();
        let tags = vec![("overflow".to_owned(), "true".to_owned())];
        assert_eq!(overflow, [(&tags, "0s-1s", 1_000 - TAGS_MAX as u64)]);
    }
}
