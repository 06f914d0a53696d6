//! Statistics and distributions as JSON.
//!
//! A statistic is `{"lower", "estimate", "upper"}` in the unit that its document names. Numbers
//! read back to the same bits. `null` means unbounded or unknown.

use hist::{Bracket, Mixture};

use crate::json::Json::{self, Map, Null, Object, Text};
use crate::json::{integer, number};

/// Statistic with its bounds.
pub fn bracket(b: Bracket) -> Json {
    Object(fields(b))
}

/// Fields of a statistic, for an object with more fields.
pub fn fields(b: Bracket) -> Vec<(&'static str, Json)> {
    vec![("lower", number(b.lower)), ("estimate", number(b.estimate)), ("upper", number(b.upper))]
}

/// Count with its bounds.
pub fn count(n: Bracket<u64>) -> Json {
    Object(vec![
        ("lower", integer(n.lower)),
        ("estimate", integer(n.estimate)),
        ("upper", integer(n.upper)),
    ])
}

/// Statistic, or `null` if there are no values.
pub fn statistic(of: Option<Bracket>) -> Json {
    of.map_or(Null, bracket)
}

/// Labels as an object.
pub fn labels<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Json {
    Map(labels.map(|(name, value)| (name.to_owned(), Text(value.to_owned()))).collect())
}

/// Distribution: count, sum, minimum, maximum and cells.
pub fn distribution(mixture: &Mixture) -> Vec<(&'static str, Json)> {
    let cells = mixture.components().iter().flat_map(hist::Histogram::cells).collect();
    vec![
        ("count", integer(mixture.count())),
        ("sum", bracket(mixture.sum())),
        ("min", statistic(mixture.min())),
        ("max", statistic(mixture.max())),
        ("cells", Json::Cells(cells)),
    ]
}
