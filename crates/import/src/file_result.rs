//! Result of the import of a file, as text and as JSON.

use render::json::Json::{self, Bool, List, Null, Object, Text};
use render::json::integer;
use render::text::{escape_control, plural};
use render::time::precise_time_text;
use render::value_formatter;

use crate::import_batches::ImportSummary;
use crate::scan::ScanSummary;

/// Result of one file, or of one block.
pub struct FileResult {
    pub(crate) name: String,
    /// Name of the format; `None` if it was not recognised.
    pub(crate) format: Option<&'static str>,
    pub(crate) scan: ScanSummary,
    pub(crate) summary: Option<ImportSummary>,
}

/// Less than the displayed precision.
const INSTANT_NS: i64 = 1_000_000;

impl FileResult {
    /// Whether all of the file is in the store or the server.
    pub fn is_complete(&self) -> bool {
        self.summary.is_some() && self.scan.error_count == 0
    }

    /// Whether batches were stored that were not there before.
    pub fn has_new_batches(&self) -> bool {
        self.summary.as_ref().is_some_and(|summary| summary.batches > summary.duplicates)
    }

    /// What was imported, as text; `None` if nothing was.
    pub fn text(&self) -> Option<String> {
        self.summary.as_ref().map(|summary| file_text(self, summary))
    }
}

fn file_text(one: &FileResult, filled: &ImportSummary) -> String {
    let mut parts = Vec::new();
    let with_values = filled.histograms - filled.cumulative;
    if with_values > 0 {
        parts.push(format!(
            "{} with {}",
            plural(with_values, "histogram", "histograms"),
            plural(filled.values, "value", "values")
        ));
    }
    if filled.cumulative > 0 {
        parts.push(plural(
            filled.cumulative,
            "sample of cumulative histograms",
            "samples of cumulative histograms",
        ));
    }
    if filled.numbers > 0 {
        parts.push(plural(filled.numbers, "number", "numbers"));
    }
    if filled.texts > 0 {
        parts.push(plural(filled.texts, "text", "texts"));
    }
    let mut text = format!("{}: ", escape_control(&one.name));
    if filled.duplicates == filled.batches {
        text.push_str("already in the store; nothing is counted twice");
    } else {
        text.push_str(&parts.join(", "));
        text.push_str(&format!(" in {}", plural(filled.series, "series", "series")));
        if let Some((start, end)) = filled.time_range {
            let (start, end, is_moment) =
                (precise_time_text(start), precise_time_text(end), end - start < INSTANT_NS);
            text.push_str(&match is_moment {
                true => format!(", at {start}"),
                false => format!(", {start} to {end}"),
            });
        }
        if filled.duplicates > 0 {
            text.push_str(&format!(
                "; {} of {} already in the store",
                value_formatter::count(filled.duplicates),
                plural(filled.batches, "batch", "batches")
            ));
        }
    }
    text.push('\n');
    let skipped = one.scan.skipped_text("  skipped: ");
    if !skipped.is_empty() {
        text.push_str(&format!("{skipped}\n"));
    }
    text
}

/// Results as JSON.
pub fn results_json(imported: &[FileResult]) -> Json {
    let time = |ns: Option<i64>| ns.map_or(Null, |ns| Json::Integer(ns.into()));
    let files = imported.iter().map(|one| {
        let scan = &one.scan;
        let skipped = scan.skipped.iter().map(|(what, n)| ((*what).to_owned(), integer(*n)));
        let mut fields = vec![
            ("file", Text(one.name.clone())),
            ("format", one.format.map_or(Null, |format| Text(format.to_owned()))),
            ("is_imported", Bool(one.summary.is_some())),
        ];
        if let Some(filled) = &one.summary {
            fields.extend([
                ("batches", integer(filled.batches)),
                ("duplicate_batches", integer(filled.duplicates)),
                ("series", integer(filled.series)),
                ("histograms", integer(filled.histograms)),
                ("cumulative_histograms", integer(filled.cumulative)),
                ("values", integer(filled.values)),
                ("numbers", integer(filled.numbers)),
                ("texts", integer(filled.texts)),
                ("from_ns", time(filled.time_range.map(|extent| extent.0))),
                ("to_ns", time(filled.time_range.map(|extent| extent.1))),
            ]);
        }
        fields.extend([
            ("skipped", Json::Map(skipped.collect())),
            ("errors", List(scan.errors.iter().cloned().map(Text).collect())),
            ("error_count", integer(scan.error_count)),
        ]);
        Object(fields)
    });
    Object(vec![("schema", integer(2)), ("files", List(files.collect()))])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8,200 requests in cumulative samples were "172,200 values".
    #[test]
    fn samples_of_cumulative_histograms_are_not_counted_as_values() {
        let mut summary = ImportSummary { batches: 1, series: 2, ..ImportSummary::default() };
        for is_cumulative in [false, true, true] {
            summary.add_histogram(is_cumulative, 4_100);
        }
        let (scan, format) = (ScanSummary::default(), Some("openmetrics"));
        let one = FileResult { name: "a".to_owned(), format, scan, summary: Some(summary) };
        assert_eq!(
            one.text().unwrap(),
            "a: 1 histogram with 4,100 values, 2 samples of cumulative histograms in 2 series\n"
        );
    }
}
