//! A series: registered when it is recorded to for the first time, then a few instructions from its cells.

use std::collections::BTreeMap;

use metrics::{Key, Unit};

use super::names;
use super::refused::{Reason, Refused};
use crate::lazy::{Lazy, Missing};

/// What a series is in shared memory.
pub(super) trait Shown: Sized {
    /// Registers it; values come in this unit.
    fn register(description: shm::Description, unit: Option<Unit>) -> shm::Result<Self>;
}

pub(super) struct Series<T> {
    key: Key,
    shown: Lazy<T>,
    /// Whether series that have no place of their own are counted here together.
    pub(super) is_overflow: bool,
    pub(super) refused: Refused,
}

impl<T> Series<T> {
    pub(super) fn new(key: Key, is_overflow: bool) -> Series<T> {
        let refused = Refused::new(key.name());
        Series { key, shown: Lazy::new(), is_overflow, refused }
    }

    /// One too many: whatever is recorded is refused.
    pub(super) fn without_room(key: Key) -> Series<T> {
        Series { shown: Lazy::never(), ..Series::new(key, false) }
    }
}

impl<T: Shown> Series<T> {
    /// What it is in shared memory, if anything; what is recorded where there is none, and never will be, counts as refused.
    #[inline(always)]
    pub(super) fn shown(&self) -> Option<&T> {
        match self.shown.get(|| self.register()) {
            Ok(shown) => Some(shown),
            Err(missing) => {
                if missing == Missing::ForGood {
                    self.refused.count(Reason::NoSeries);
                }
                None
            }
        }
    }

    fn register(&self) -> shm::Result<T> {
        let (unit, help) = names::settle(self.key.name_shared());
        let description = shm::Description::new(self.key.name()).help(help);
        // Of labels that come twice the last one counts; shared memory would refuse them.
        let labels: BTreeMap<_, _> =
            self.key.labels().map(|label| (label.key(), label.value())).collect();
        let labelled =
            |description: shm::Description, (name, value)| description.label(name, value);
        T::register(labels.into_iter().fold(description, labelled), unit)
    }
}
