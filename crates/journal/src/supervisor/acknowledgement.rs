//! Acknowledgements of damage by an operator.
//!
//! Lost data stays lost, so its report would stay too. An acknowledged location is no longer
//! reported as a problem; it is listed as acknowledged. The owner of the supervisor stores
//! acknowledgements durably and restores them at start.

use super::Supervisor;

/// Acknowledgement of damaged stored data, or of an input that is skipped for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageAcknowledgement {
    /// Location of the damage, or name of the input.
    pub location: String,
    /// Number of lost records.
    pub records: u64,
    /// Time of detection, in nanoseconds since the Unix epoch.
    pub found_at: i64,
    /// Time of the acknowledgement, in nanoseconds since the Unix epoch.
    pub time: i64,
    /// Note of the operator.
    pub note: String,
}

impl Supervisor {
    /// Acknowledgements of what is reported and not acknowledged yet. An input that is retried is
    /// not included: its report ends when it succeeds.
    pub fn acknowledgements_due(&self, note: &str) -> Vec<DamageAcknowledgement> {
        let now = self.now();
        let due = |location, records, found_at| DamageAcknowledgement {
            location,
            records,
            found_at,
            time: now,
            note: note.to_owned(),
        };
        let damage = self.damage();
        let damage = damage.into_iter().map(|it| due(it.location, it.records, it.time));
        let skipped = self.quarantined().into_iter().filter(|input| !input.is_retried);
        let skipped = skipped.map(|input| due(input.name, 1, input.time));
        damage.chain(skipped).filter(|it| !self.is_acknowledged(&it.location)).collect()
    }

    /// Adds acknowledgements. A location that has one keeps it.
    pub fn acknowledge(&self, acknowledged: impl IntoIterator<Item = DamageAcknowledgement>) {
        let mut state = self.state();
        for one in acknowledged {
            if state.acknowledged.iter().all(|known| known.location != one.location) {
                state.acknowledged.push(one);
            }
        }
    }

    /// All acknowledgements, in order of time.
    pub fn acknowledged(&self) -> Vec<DamageAcknowledgement> {
        self.state().acknowledged.clone()
    }

    /// Whether a location of damage, or the name of an input, is acknowledged.
    pub fn is_acknowledged(&self, location: &str) -> bool {
        self.state().acknowledged.iter().any(|known| known.location == location)
    }
}
