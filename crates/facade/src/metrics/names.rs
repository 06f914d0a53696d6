//! What is said of names: a description may come before the first value, and counts from then on.
//!
//! With the first value of a name its unit is settled, for all its series and for good: values of two units would not add up.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use metrics::{KeyName, SharedString, Unit};

use super::refused::{Reason, Refused};
use super::unit;

/// Names that are remembered; what is described beyond is refused, and goes by its name alone.
const NAMES_MAX: usize = shm::layout::ENTRIES_MAX;

static NAMES: Mutex<BTreeMap<KeyName, Said>> = Mutex::new(BTreeMap::new());

struct Said {
    unit: Option<Unit>,
    help: SharedString,
    is_settled: bool,
}

/// Says what a name is. What the name ends with goes for the unit where none is said.
pub(super) fn describe(name: KeyName, unit: Option<Unit>, help: SharedString) {
    if let Err(reason) = remember(&name, unit, help) {
        Refused::new(name.as_str()).count(reason);
    }
}

fn remember(name: &KeyName, unit: Option<Unit>, help: SharedString) -> Result<(), Reason> {
    let unit = unit.or_else(|| unit::of_name(name.as_str()));
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let is_full = names.len() >= NAMES_MAX;
    match names.get_mut(name) {
        Some(said) if said.is_settled => match said.unit == unit && said.help == help {
            true => Ok(()),
            false => Err(Reason::LateDescription),
        },
        Some(said) => {
            (said.unit, said.help) = (unit, help);
            Ok(())
        }
        None if is_full => Err(Reason::NoSeries),
        None => {
            names.insert(name.to_retained(), Said { unit, help, is_settled: false });
            Ok(())
        }
    }
}

/// The unit and help of a name, from now on.
pub(super) fn settle(name: KeyName) -> (Option<Unit>, String) {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(said) = names.get_mut(&name) {
        said.is_settled = true;
        return (said.unit, said.help.to_string());
    }
    let unit = unit::of_name(name.as_str());
    if names.len() < NAMES_MAX {
        let help = SharedString::const_str("");
        names.insert(name.to_retained(), Said { unit, help, is_settled: true });
    }
    (unit, String::new())
}
