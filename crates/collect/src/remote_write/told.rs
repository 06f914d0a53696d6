//! What a request tells of a series, and the series that is.

use hist::codec::header::Temporality;
use model::{Kind, Series};

use crate::convention;
use crate::trouble::{Trouble, quote};
use crate::unit::Unit;

const NAME: &str = "__name__";

/// What values are told of. Each is a series of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum What {
    Numbers,
    Histograms,
    GaugeHistograms,
    /// Where a series of histograms ends. It is no gauge, so that it is in nobody's way who adds histograms up.
    Ends,
}

/// Type of a metric family, as version 2 numbers them; version 1 says 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Type(pub(super) u8);

impl Type {
    const COUNTER: Type = Type(1);
    const GAUGE: Type = Type(2);
    const GAUGE_HISTOGRAM: Type = Type(4);
    const INFO: Type = Type(6);
    const STATE_SET: Type = Type(7);

    /// Whether numbers of that name count, one onto the other.
    pub(super) fn counts(self, name: &str) -> bool {
        match self {
            Type::COUNTER => true,
            Type::GAUGE | Type::GAUGE_HISTOGRAM | Type::INFO | Type::STATE_SET => false,
            // Parts of histograms and summaries, and what nobody knows.
            _ => convention::grows(name),
        }
    }

    /// Whether the unit of the family is not that of the numbers of that name.
    fn has_other_unit(self, name: &str) -> bool {
        self != Type::COUNTER && self != Type::GAUGE && convention::is_count_of_values(name)
    }
}

/// A series as a request tells it.
pub(super) trait Told {
    /// Names and values of the labels, the metric's name among them.
    fn labels<'a>(&'a self, each: &mut dyn FnMut(&'a [u8], &'a [u8])) -> Result<(), Trouble>;
    /// Type and unit of the family.
    fn family(&self) -> (Type, &[u8]);
}

/// The metric's name, if it is there and text.
pub(super) fn name(told: &dyn Told) -> Option<&str> {
    let mut found = None;
    let read = told.labels(&mut |name, value| {
        if name == NAME.as_bytes() {
            found = Some(value);
        }
    });
    read.ok().and(found).and_then(|name| std::str::from_utf8(name).ok())
}

/// As messages name it.
pub(super) fn described(told: &dyn Told) -> String {
    name(told).map_or("a series without name".to_owned(), |name| quote(name.as_bytes()))
}

/// The series of some of its values, or why it is none.
pub(super) fn series(what: What, told: &dyn Told) -> Result<Series, String> {
    let (mut metric, mut labels, mut wrong) = (None, Vec::new(), None);
    let text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map(str::to_owned);
        text.map_err(|_| format!("{} is no text in UTF-8", quote(bytes)))
    };
    let mut label = |name: &[u8], value: &[u8]| {
        let (name, value) = (text(name)?, text(value)?);
        if name != NAME {
            labels.push((name, value));
        } else if metric.replace(value).is_some() {
            return Err(format!("label \"{NAME}\" is given twice"));
        }
        Ok(())
    };
    told.labels(&mut |name, value| {
        if wrong.is_none() {
            wrong = label(name, value).err();
        }
    })
    .map_err(|trouble| trouble.to_string())?;
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    let metric = metric.filter(|name| !name.is_empty()).ok_or("it has no name")?;
    let (family, unit) = told.family();
    let mut series = Series::new(metric.as_str(), kind(what, family, &metric));
    if let Some(unit) = unit_of(what, family, &metric, &text(unit)?) {
        series = series.with_unit(unit.name());
    }
    series.with_labels(labels).checked().map_err(|error| error.to_string())
}

fn kind(what: What, family: Type, name: &str) -> Kind {
    match what {
        What::Numbers if !family.counts(name) => Kind::Gauge,
        What::Numbers | What::Ends => Kind::Counter(Temporality::Cumulative),
        What::Histograms => Kind::Histogram(Temporality::Cumulative),
        What::GaugeHistograms => Kind::Histogram(Temporality::Delta),
    }
}

fn unit_of(what: What, family: Type, name: &str, said: &str) -> Option<Unit> {
    if what == What::Numbers && family.has_other_unit(name) {
        return None;
    }
    convention::named_unit(said).or_else(|| convention::unit(name))
}
