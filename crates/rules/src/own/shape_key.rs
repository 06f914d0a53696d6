//! Keys `shape_of` and `min_shift` of a criterion, as written.

use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::criterion::Measure;
use super::saved_baseline::SavedBaseline;
use super::table_problem::{TableResult, duration, problem};
use crate::rule_file::RuleFileReader;

/// Key `shape_of`.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "shape_of: expected a duration such as \"1d\", or { file = \"baseline.frames\" }"
)]
pub(super) enum BaselineKey {
    /// This long before.
    Before(String),
    /// Distributions that were saved.
    Saved(BaselineFile),
}

/// `shape_of = { file = "baseline.frames" }`, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BaselineFile {
    file: String,
}

/// The measure of the criterion, and its text.
pub(super) fn shape_measure(
    written: &Spanned<BaselineKey>,
    min_shift: f64,
    read: RuleFileReader<'_>,
) -> TableResult<(Measure, String)> {
    match written.get_ref() {
        BaselineKey::Before(text) => {
            let baseline_ns = duration(&Spanned::new(written.span(), text.clone()))?;
            let before = decode::duration_text(baseline_ns);
            let words = format!("shape differs from that {before} before");
            Ok((Measure::ShapeChange { baseline_ns, min_shift }, words))
        }
        BaselineKey::Saved(BaselineFile { file }) => {
            let baseline = read(file).and_then(|bytes| SavedBaseline::parse(file, &bytes));
            let baseline = baseline.or_else(|cause| {
                let what = format!("shape_of: cannot use {file:?}: {cause}");
                problem(written, what + "; save it with topdeck query --frames")
            })?;
            let words = format!("shape differs from that of {file}");
            Ok((Measure::SavedShape { baseline: Arc::new(baseline), min_shift }, words))
        }
    }
}
