//! JSON documents, shared by the HTTP API and the commands.
//!
//! Times are nanoseconds since the Unix epoch. A statistic is `{"lower", "estimate", "upper"}` in the unit named;
//! numbers read back to the same bits; `null` stands for no bound, or for not known; in answers to
//! questions in PromQL and CAQL infinities are texts. Fields are only ever added; a change of
//! meaning is another `schema`.

pub mod breakdown;
pub mod cardinality;
pub mod compare;
pub mod result;

use hist::{Bracket, Mixture};
use model::{Gap, Series, selector};

use crate::json::Json::{self, Integer, Map, Null, Object, Text};
use crate::json::{integer, number};

/// A statistic with the bounds that the truth lies in.
pub fn bracket(b: Bracket) -> Json {
    Object(fields(b))
}

/// The same, for an object that has more fields.
pub fn fields(b: Bracket) -> Vec<(&'static str, Json)> {
    vec![("lower", number(b.lower)), ("estimate", number(b.estimate)), ("upper", number(b.upper))]
}

/// A count with its bounds.
pub fn count(n: Bracket<u64>) -> Json {
    Object(vec![
        ("lower", integer(n.lower)),
        ("estimate", integer(n.estimate)),
        ("upper", integer(n.upper)),
    ])
}

/// A statistic of what may be nothing.
pub fn statistic(of: Option<Bracket>) -> Json {
    of.map_or(Null, bracket)
}

/// What is known to be missing.
pub fn gap(gap: &Gap) -> Json {
    Object(vec![
        ("start_ns", Integer(gap.start.into())),
        ("end_ns", Integer(gap.end.into())),
        ("producer", gap.producer.map_or(Null, |producer| Text(format!("{producer:016x}")))),
        ("lost", gap.lost.map_or(Null, integer)),
        ("reason", Text(gap.reason.clone())),
    ])
}

/// Labels by their names.
pub fn labels<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Json {
    Map(labels.map(|(name, value)| (name.to_owned(), Text(value.to_owned()))).collect())
}

/// What a series is.
pub(crate) fn series_fields(series: &Series) -> Vec<(&'static str, Json)> {
    let pairs = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
    vec![
        ("name", Text(series.name().to_owned())),
        ("labels", self::labels(pairs)),
        ("kind", Text(selector::kind_name(series.kind()).to_owned())),
        ("unit", unit_json(series.unit())),
    ]
}

pub(crate) fn unit_json(unit: &str) -> Json {
    if unit.is_empty() { Null } else { Text(unit.to_owned()) }
}

/// A distribution: its count, sum and extremes, and its cells.
pub fn distribution(mixture: &Mixture) -> Vec<(&'static str, Json)> {
    let cells = mixture.parts().iter().flat_map(hist::Histogram::cells).collect();
    vec![
        ("count", integer(mixture.count())),
        ("sum", bracket(mixture.sum())),
        ("min", statistic(mixture.min())),
        ("max", statistic(mixture.max())),
        ("cells", Json::Cells(cells)),
    ]
}
