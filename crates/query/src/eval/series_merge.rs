//! Series with the same labels: of several kinds, which are merged, or of several units.

use std::collections::BTreeSet;

use model::selector::{KIND as KIND_TAG, UNIT as UNIT_TAG, kind_name};
use model::{Selector, SeriesKind};

use crate::error::{Error, Result, SourceSpan};
use crate::eval::Evaluation;
use crate::eval::series::SeriesGroup;
use crate::labels::{LabelSet, NAME, TYPE, UNIT};
use crate::source::SeriesHandle;

impl Evaluation<'_> {
    /// Whether series with the same labels can be merged: a sender may change the kind, not the
    /// unit.
    pub(super) fn check_single_kind(
        &mut self,
        labels: &LabelSet,
        handles: &[&SeriesHandle],
        span: SourceSpan,
    ) -> Result<()> {
        if handles.len() < 2 {
            return Ok(());
        }
        if let Some((first, other)) = different_units(handles) {
            let narrow = labels.with(UNIT_TAG, &other.unit);
            let message = format!(
                "cannot merge {labels}: it was sent as {} and as {}; select one with __unit, as \
                 in {narrow}, or rename or delete the others",
                describe(first),
                describe(other)
            );
            return Err(Error::Execution { span, message });
        }
        let kind = kind_name(handles[0].kind);
        let unit = handles.iter().find(|handle| !handle.unit.is_empty());
        let all: Vec<String> = handles.iter().map(|handle| describe(handle)).collect();
        let (all, narrow) = match unit {
            _ if handles.iter().any(|handle| handle.kind != handles[0].kind) => {
                (all, labels.with(KIND_TAG, kind))
            }
            Some(handle) => (all, labels.with(UNIT_TAG, &handle.unit)),
            None => match self.units_of_histograms(labels)?.into_iter().collect::<Vec<_>>() {
                units if units.len() > 1 => (
                    units.iter().map(|unit| format!("{kind} of values in {unit}")).collect(),
                    labels.with(UNIT_TAG, &units[0]),
                ),
                _ => (all, labels.clone()),
            },
        };
        let message = format!(
            "{labels} was sent as {}: the samples are merged; select one with __unit or __kind, \
             as in {narrow}",
            all.join(" and as ")
        );
        self.warnings.warn(span, message);
        Ok(())
    }

    /// Units of the histograms whose counts have these labels: counts have no unit.
    fn units_of_histograms(&self, labels: &LabelSet) -> Result<BTreeSet<String>> {
        let base = labels.name().strip_suffix("_count");
        let Some(base) = base else { return Ok(BTreeSet::new()) };
        let mut found = self.source.select(&Selector::label_equals(NAME, base))?;
        let of_labels = labels.with(NAME, base);
        found.retain(|handle| is_histogram(handle) && handle.labels == of_labels);
        let units = found.into_iter().map(|handle| handle.unit);
        Ok(units.filter(|unit| !unit.is_empty()).collect())
    }
}

/// Order of samples with the same timestamp: a known type comes after a gauge.
pub(super) fn rank(kind: SeriesKind) -> u8 {
    match kind {
        SeriesKind::Text => 0,
        SeriesKind::Gauge => 1,
        SeriesKind::Counter(_) => 2 + u8::from(kind.is_cumulative()),
        SeriesKind::Histogram(_) => 4 + u8::from(kind.is_cumulative()),
    }
}

pub(super) fn is_histogram(handle: &SeriesHandle) -> bool {
    matches!(handle.kind, SeriesKind::Histogram(_))
}

pub(super) fn is_number(handle: &SeriesHandle) -> bool {
    matches!(handle.kind, SeriesKind::Counter(_) | SeriesKind::Gauge)
}

/// Two of the handles with different units, if there are any.
fn different_units<'h>(
    handles: &[&'h SeriesHandle],
) -> Option<(&'h SeriesHandle, &'h SeriesHandle)> {
    let mut with_unit = handles.iter().filter(|handle| !handle.unit.is_empty());
    let first = with_unit.next()?;
    with_unit.find(|other| other.unit != first.unit).map(|other| (*first, *other))
}

/// Series with the same labels but different units, told apart by the labels `__type__` and
/// `__unit__` of Prometheus.
pub(super) fn split_by_unit((labels, handles): SeriesGroup) -> Vec<SeriesGroup> {
    let differ = [is_histogram, is_number].into_iter().any(|class| {
        let same: Vec<&SeriesHandle> = handles.iter().filter(|handle| class(handle)).collect();
        same.windows(2).any(|pair| pair[0].unit != pair[1].unit)
    });
    if !differ {
        return vec![(labels, handles)];
    }
    let mut split: Vec<SeriesGroup> = Vec::new();
    for handle in handles {
        let labels = with_type_and_unit(&handle);
        match split.iter_mut().find(|(known, _)| *known == labels) {
            Some((_, same)) => same.push(handle),
            None => split.push((labels, vec![handle])),
        }
    }
    split
}

pub(super) fn with_type_and_unit(handle: &SeriesHandle) -> LabelSet {
    let kind = match handle.kind {
        SeriesKind::Histogram(_) => "histogram",
        SeriesKind::Counter(_) => "counter",
        SeriesKind::Gauge => "gauge",
        SeriesKind::Text => "",
    };
    let labels = match handle.labels.get(TYPE) {
        "" => handle.labels.with(TYPE, kind),
        _ => handle.labels.clone(),
    };
    match (labels.get(UNIT), handle.unit.as_str()) {
        ("", unit) if !unit.is_empty() => labels.with(UNIT, unit),
        _ => labels,
    }
}

fn describe(handle: &SeriesHandle) -> String {
    let kind = kind_name(handle.kind);
    match handle.unit.as_str() {
        "" => kind.to_owned(),
        unit => format!("{kind} in {unit}"),
    }
}
