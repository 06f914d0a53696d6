//! Plain numbers beside series of the same metric with a unit.
//!
//! A sender that leaves out the unit would otherwise have its values added to those of the others,
//! or compared with a threshold, as if it had their unit: 250 is neither 250 ms nor 250 ns. Its
//! series are left out, with a warning that names them. Plain gauges and counters are left out only
//! beside a unit of time: one latency is measured in several of them, whereas numbers by Prometheus
//! have other units only in their names.

use std::collections::HashMap;

use model::{SeriesKind, selector};

use crate::source::SeriesHandle;

/// Series named in a warning.
const EXAMPLES: usize = 3;

/// Units of time.
const TIMES: [&str; 7] = ["ns", "us", "ms", "s", "min", "h", "d"];

/// What the series of a metric have in common: distributions or numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Family<'h> {
    name: &'h str,
    is_histogram: bool,
}

/// Units of a family.
#[derive(Default)]
struct FamilyUnits<'h> {
    /// The unit of all series that have one; empty if none has.
    unit: &'h str,
    has_several: bool,
    has_plain: bool,
}

impl FamilyUnits<'_> {
    /// Whether plain numbers are not known to be in the unit of the others.
    fn excludes_plain(&self, is_histogram: bool) -> bool {
        let is_ambiguous = match is_histogram {
            true => !self.unit.is_empty(),
            false => TIMES.contains(&self.unit),
        };
        self.has_plain && !self.has_several && is_ambiguous
    }
}

/// Whether values are plain numbers: an annotation such as {request} is no unit.
fn is_plain(unit: &str) -> bool {
    unit.is_empty() || unit.starts_with('{')
}

fn family(handle: &SeriesHandle) -> Family<'_> {
    let is_histogram = matches!(handle.kind, SeriesKind::Histogram(_));
    Family { name: handle.labels.name(), is_histogram }
}

/// For each series, whether it is left out; `None` if all stay.
fn left_out(handles: &[SeriesHandle]) -> Option<Vec<bool>> {
    let first = is_plain(&handles.first()?.unit);
    if handles.iter().all(|handle| is_plain(&handle.unit) == first) {
        return None;
    }
    let mut families: HashMap<Family<'_>, FamilyUnits<'_>> = HashMap::new();
    for handle in handles.iter().filter(|handle| handle.kind != SeriesKind::Text) {
        let units = families.entry(family(handle)).or_default();
        match handle.unit.as_str() {
            unit if is_plain(unit) => units.has_plain = true,
            unit if units.unit.is_empty() => units.unit = unit,
            unit => units.has_several |= unit != units.unit,
        }
    }
    let is_left_out = |handle: &SeriesHandle| {
        let family = family(handle);
        let units = families.get(&family);
        is_plain(&handle.unit)
            && units.is_some_and(|units| units.excludes_plain(family.is_histogram))
    };
    let all: Vec<bool> = handles.iter().map(is_left_out).collect();
    all.contains(&true).then_some(all)
}

/// Removes the plain numbers among series with a unit, and returns a warning about them.
pub(crate) fn remove_plain_numbers(handles: &mut Vec<SeriesHandle>) -> Option<String> {
    let is_left_out = left_out(handles)?;
    let mut removed: Vec<SeriesHandle> = Vec::new();
    let mut at = is_left_out.into_iter();
    let all = std::mem::take(handles);
    for handle in all {
        match at.next() {
            Some(true) => removed.push(handle),
            _ => handles.push(handle),
        }
    }
    model::sort::by(&mut removed, |a, b| a.labels.cmp(&b.labels));
    let named: Vec<String> =
        removed.iter().take(EXAMPLES).map(|handle| handle.labels.to_string()).collect();
    let more = match removed.len().saturating_sub(EXAMPLES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (verb, it) = match removed.len() {
        1 => ("is left out: it has", "it"),
        _ => ("are left out: they have", "them"),
    };
    Some(format!(
        "{}{more} {verb} no unit, unlike the others of the metric; select {it} with {{{}=\"\"}}, \
         or rename or delete {it}",
        named.join(", "),
        selector::UNIT
    ))
}

/// The series that [`remove_plain_numbers`] keeps, if it removes any.
pub(crate) fn without_plain_numbers(handles: &[SeriesHandle]) -> Option<Vec<SeriesHandle>> {
    let is_left_out = left_out(handles)?;
    let kept = handles.iter().zip(is_left_out).filter(|(_, left_out)| !left_out);
    Some(kept.map(|(handle, _)| handle.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::{LabelSet, NAME};
    use hist::codec::header::Temporality;

    const HISTOGRAM: SeriesKind = SeriesKind::Histogram(Temporality::Delta);
    const COUNTER: SeriesKind = SeriesKind::Counter(Temporality::Cumulative);

    /// Series by name, kind and unit; the hosts that are left out.
    #[track_caller]
    fn check(series: &[(&str, SeriesKind, &str)], expected: &[usize]) {
        let handles: Vec<SeriesHandle> = series
            .iter()
            .enumerate()
            .map(|(key, (name, kind, unit))| SeriesHandle {
                labels: LabelSet::new([(NAME, *name)]).with("host", &key.to_string()),
                kind: *kind,
                unit: (*unit).to_owned(),
                key,
            })
            .collect();
        let kept = without_plain_numbers(&handles);
        let mut removing = handles.clone();
        let warning = remove_plain_numbers(&mut removing);
        assert_eq!((warning.is_some(), kept.is_some()), (!expected.is_empty(), warning.is_some()));
        let keys = |of: &[SeriesHandle]| of.iter().map(|handle| handle.key).collect::<Vec<_>>();
        let remaining: Vec<usize> =
            (0..series.len()).filter(|key| !expected.contains(key)).collect();
        assert_eq!(keys(&removing), remaining, "{warning:?}");
        assert_eq!(kept.map_or(remaining.clone(), |kept| keys(&kept)), remaining);
    }

    #[test]
    fn plain_distributions_are_left_out_beside_one_unit() {
        check(&[("x", HISTOGRAM, "ns"), ("x", HISTOGRAM, ""), ("x", HISTOGRAM, "ns")], &[1]);
        check(&[("x", HISTOGRAM, "B"), ("x", HISTOGRAM, "{item}")], &[1]);
        check(&[("x", HISTOGRAM, ""), ("x", HISTOGRAM, "")], &[]);
        // With several units it is not known which to keep: the merge is an error.
        check(&[("x", HISTOGRAM, "ns"), ("x", HISTOGRAM, ""), ("x", HISTOGRAM, "ms")], &[]);
    }

    #[test]
    fn plain_numbers_are_left_out_beside_times_only() {
        check(&[("x", SeriesKind::Gauge, "s"), ("x", COUNTER, "")], &[1]);
        check(&[("x", COUNTER, "B"), ("x", COUNTER, "")], &[]);
        check(&[("x", COUNTER, "{request}"), ("x", COUNTER, "")], &[]);
    }

    #[test]
    fn other_metrics_and_kinds_have_units_of_their_own() {
        check(&[("x", HISTOGRAM, "ns"), ("y", HISTOGRAM, "")], &[]);
        // A staleness marker is a number beside the distributions.
        check(&[("x", HISTOGRAM, "ns"), ("x", COUNTER, "")], &[]);
    }
}
