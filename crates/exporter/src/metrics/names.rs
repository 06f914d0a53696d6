//! Descriptions of metric names, fixed at the first value.
//!
//! The first value of a name fixes its unit for all its series and for good: values of two units
//! cannot be combined.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use metrics::{KeyName, SharedString, Unit};

use super::rejected::{RejectedValues, ValueRejectReason};
use super::unit;

/// Limit of described names; further descriptions are rejected, and those names use their suffix
/// only.
const NAMES_MAX: usize = shm::layout::ENTRIES_MAX;

static DESCRIPTIONS: Mutex<BTreeMap<KeyName, MetricDescription>> = Mutex::new(BTreeMap::new());

struct MetricDescription {
    unit: Option<Unit>,
    help: SharedString,
    is_fixed: bool,
}

/// Describes a name. Without a unit, the suffix of the name determines it.
pub(super) fn describe(name: KeyName, unit: Option<Unit>, help: SharedString) {
    if let Err(reason) = add_description(&name, unit, help) {
        RejectedValues::new(name.as_str()).count(reason);
    }
}

fn add_description(
    name: &KeyName,
    unit: Option<Unit>,
    help: SharedString,
) -> Result<(), ValueRejectReason> {
    let unit = unit.or_else(|| unit::unit_of_name(name.as_str()));
    let mut names = DESCRIPTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_full = names.len() >= NAMES_MAX;
    match names.get_mut(name) {
        Some(said) if said.is_fixed => match said.unit == unit && said.help == help {
            true => Ok(()),
            false => Err(ValueRejectReason::LateDescription),
        },
        Some(said) => {
            (said.unit, said.help) = (unit, help);
            Ok(())
        }
        None if is_full => Err(ValueRejectReason::NoSeries),
        None => {
            names.insert(name.to_retained(), MetricDescription { unit, help, is_fixed: false });
            Ok(())
        }
    }
}

/// Unit and help text of a name, fixed from now on.
pub(super) fn fix_description(name: KeyName) -> (Option<Unit>, String) {
    let mut names = DESCRIPTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(said) = names.get_mut(&name) {
        said.is_fixed = true;
        return (said.unit, said.help.to_string());
    }
    let unit = unit::unit_of_name(name.as_str());
    if names.len() < NAMES_MAX {
        let help = SharedString::const_str("");
        names.insert(name.to_retained(), MetricDescription { unit, help, is_fixed: true });
    }
    (unit, String::new())
}
