//! JSON documents, shared by the HTTP API and the commands.
//!
//! Times are nanoseconds since the Unix epoch. A statistic is `{"lower", "estimate", "upper"}` in
//! the unit named; numbers round-trip exactly; `null` means no bound, or unknown; in responses to
//! PromQL and CAQL queries infinities are strings. New fields may be added; a change of meaning is
//! a new `schema`.
//!
//! Each module writes one document, and reads it back as an answer. Cells are merged counts between
//! bounds; a program that computes statistics from them gets other bounds than the server has. So
//! documents that are read back carry frames ([`CellEncoding::Frames`]), which are exact.

pub mod breakdown;
pub mod cardinality;
pub mod compare;
pub mod deletion;
pub mod heatmap;
pub mod overview;
pub(crate) mod reader;
pub mod result;
pub mod selection;
mod wide_bounds;

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hist::codec::frame;
use hist::codec::header::SeriesMeta;
use hist::{Histogram, Mixture, Scheme};

use model::{Gap, Series, selector};

pub use render::json::statistics::{bracket, count, distribution, labels, statistic};
pub use wide_bounds::wide_bounds_warning;

/// How a document contains the buckets of distributions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellEncoding {
    /// Objects with bounds and a count.
    #[default]
    Objects,
    /// Histograms as base64 of frames (docs/formats/frame.md).
    Frames,
}

/// Distribution with its buckets in an encoding.
pub fn encoded_distribution(mixture: &Mixture, cells: CellEncoding) -> Vec<(&'static str, Json)> {
    let mut fields = distribution(mixture);
    if cells == CellEncoding::Frames {
        fields.pop();
        let frame = |part: &Histogram| {
            let mut bytes = Vec::new();
            frame::encode(&encodable(part), SeriesMeta::default(), &mut bytes);
            Text(BASE64_STANDARD.encode(&bytes))
        };
        fields.push(("frames", Json::List(mixture.components().iter().map(frame).collect())));
    }
    fields
}

/// A histogram with a scheme that a frame has: the buckets of a value in another unit are explicit.
pub(crate) fn encodable(part: &Histogram) -> Cow<'_, Histogram> {
    let is_scaled = matches!(part.scheme(), Scheme::Scaled(_));
    let flat = || Mixture::from(part.clone()).flatten().ok().map(|flat| flat.histogram);
    let explicit = is_scaled.then(|| part.to_explicit().or_else(flat)).flatten();
    explicit.map_or(Cow::Borrowed(part), Cow::Owned)
}

use render::json::Json::{self, Integer, Null, Object, Text};
use render::json::integer;

/// A gap.
pub fn gap(gap: &Gap) -> Json {
    Object(vec![
        ("start_ns", Integer(gap.start.into())),
        ("end_ns", Integer(gap.end.into())),
        ("producer", gap.producer.map_or(Null, |producer| Text(format!("{producer:016x}")))),
        ("lost", gap.lost.map_or(Null, integer)),
        ("reason", Text(gap.reason.clone())),
    ])
}

/// Name, labels, kind and unit of a series.
pub fn series_fields(series: &Series) -> Vec<(&'static str, Json)> {
    let pairs = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
    vec![
        ("name", Text(series.name().to_owned())),
        ("labels", self::labels(pairs)),
        ("kind", Text(selector::kind_name(series.kind()).to_owned())),
        ("unit", unit_json(series.unit())),
    ]
}

/// Unit; `null` if there is none.
pub fn unit_json(unit: &str) -> Json {
    if unit.is_empty() { Null } else { Text(unit.to_owned()) }
}
