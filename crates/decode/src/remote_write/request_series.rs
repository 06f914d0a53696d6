//! Series of a remote write request.

use codecs::protobuf::FieldValue;
use hist::codec::header::Temporality;
use model::{Series, SeriesKind};

use crate::convention;
use crate::input_error::{InputError, quote};
use crate::unit::Unit;

const NAME: &str = "__name__";

/// Kind of samples. Each kind has a series of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SampleKind {
    Numbers,
    Histograms,
    GaugeHistograms,
    /// Staleness markers of a histogram series. The series is not a gauge, so that it does not
    /// disturb sums of histograms.
    StaleMarkers,
}

/// Metric family type with version 2's numbers; always 0 in version 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilyType(pub(super) u8);

impl FamilyType {
    const COUNTER: FamilyType = FamilyType(1);
    const GAUGE: FamilyType = FamilyType(2);
    const GAUGE_HISTOGRAM: FamilyType = FamilyType(4);
    const INFO: FamilyType = FamilyType(6);
    const STATE_SET: FamilyType = FamilyType(7);

    /// Whether numbers of this name are cumulative.
    pub(super) fn is_monotonic(self, name: &str) -> bool {
        match self {
            FamilyType::COUNTER => true,
            FamilyType::GAUGE
            | FamilyType::GAUGE_HISTOGRAM
            | FamilyType::INFO
            | FamilyType::STATE_SET => false,
            // Parts of histograms and summaries, and unknown types.
            _ => convention::is_monotonic(name),
        }
    }

    /// Kind of the samples of a series that has exemplars only.
    pub(super) fn kind_of_exemplars(self, name: &str) -> SampleKind {
        match self {
            FamilyType::COUNTER => SampleKind::Numbers,
            FamilyType::GAUGE | FamilyType::INFO | FamilyType::STATE_SET => SampleKind::Numbers,
            _ if convention::is_monotonic(name) => SampleKind::Numbers,
            FamilyType::GAUGE_HISTOGRAM => SampleKind::GaugeHistograms,
            _ => SampleKind::Histograms,
        }
    }

    /// Whether numbers of this name do not have the family's unit.
    fn has_other_unit(self, name: &str) -> bool {
        self != FamilyType::COUNTER
            && self != FamilyType::GAUGE
            && convention::is_count_of_values(name)
    }
}

/// A series of a request.
pub(crate) trait RequestSeries {
    /// Calls back with each label's name and value, the metric name included.
    fn for_each_label<'a>(
        &'a self,
        each: &mut dyn FnMut(&'a [u8], &'a [u8]),
    ) -> Result<(), InputError>;
    /// Type and unit of the family.
    fn family(&self) -> (FamilyType, &[u8]);
    /// Appends names and values of a field with labels of an exemplar; `None` if it is malformed.
    fn exemplar_labels(&self, _field: FieldValue<'_>, _texts: &mut Vec<String>) -> Option<()> {
        None
    }
}

/// Metric name, if present and UTF-8.
pub(super) fn metric_name(source: &dyn RequestSeries) -> Option<&str> {
    let mut found = None;
    let read = source.for_each_label(&mut |name, value| {
        if name == NAME.as_bytes() {
            found = Some(value);
        }
    });
    read.ok().and(found).and_then(|name| std::str::from_utf8(name).ok())
}

/// Series text for messages.
pub(super) fn display_series(source: &dyn RequestSeries) -> String {
    metric_name(source).map_or("a series without name".to_owned(), |name| quote(name.as_bytes()))
}

/// Series of the samples of one kind, or the reason for rejection.
pub(super) fn to_series(what: SampleKind, source: &dyn RequestSeries) -> Result<Series, String> {
    let (mut metric, mut labels, mut wrong) = (None, Vec::new(), None);
    let text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map(str::to_owned);
        text.map_err(|_| format!("{} is not UTF-8", quote(bytes)))
    };
    let mut label = |name: &[u8], value: &[u8]| {
        let (name, value) = (text(name)?, text(value)?);
        if name != NAME {
            labels.push((name, value));
        } else if metric.replace(value).is_some() {
            return Err(format!("duplicate label \"{NAME}\""));
        }
        Ok(())
    };
    source
        .for_each_label(&mut |name, value| {
            if wrong.is_none() {
                wrong = label(name, value).err();
            }
        })
        .map_err(|error| error.to_string())?;
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    let metric = metric.filter(|name| !name.is_empty()).ok_or("missing metric name")?;
    let (family, unit) = source.family();
    let mut series = Series::new(metric.as_str(), series_kind(what, family, &metric));
    if let Some(unit) = series_unit(what, family, &metric, &text(unit)?) {
        series = series.with_unit(unit.name());
    }
    series.with_labels(labels).validate().map_err(|error| error.to_string())
}

fn series_kind(what: SampleKind, family: FamilyType, name: &str) -> SeriesKind {
    match what {
        SampleKind::Numbers if !family.is_monotonic(name) => SeriesKind::Gauge,
        SampleKind::Numbers | SampleKind::StaleMarkers => {
            SeriesKind::Counter(Temporality::Cumulative)
        }
        SampleKind::Histograms => SeriesKind::Histogram(Temporality::Cumulative),
        // Of one instant, like a gauge: its interval is empty. It adds up with no other histogram.
        SampleKind::GaugeHistograms => SeriesKind::Histogram(Temporality::Delta),
    }
}

fn series_unit(what: SampleKind, family: FamilyType, name: &str, text: &str) -> Option<Unit> {
    if what == SampleKind::Numbers && family.has_other_unit(name) {
        return None;
    }
    convention::parse_unit(text).or_else(|| convention::unit_suffix(name))
}
