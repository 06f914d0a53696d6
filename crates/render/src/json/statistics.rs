//! Statistics and distributions as JSON.
//!
//! A statistic is `{"lower", "estimate", "upper"}` in the unit that its document names; numbers
//! read back to the same bits; `null` stands for no bound, or for not known.

use hist::{Bracket, Mixture};

use crate::json::Json::{self, Map, Null, Object, Text};
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

/// Labels by their names.
pub fn labels<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Json {
    Map(labels.map(|(name, value)| (name.to_owned(), Text(value.to_owned()))).collect())
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
