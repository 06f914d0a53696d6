//! Directory of a store: opens it, finds series, and says what to do about errors.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use client::{STORE_DIR, print_message, server_of};
use disk::OsDisk;
use model::Selector;
use query::selection::{SelectionSummary, UnitlessSeries};
use render::text::{plural, shell_quote};
use report::journal_format;
use store::{Error, ReadView, SeriesEntryRef, Store};

/// Opens a store without background threads: a command does its work and exits.
pub fn open(dir: &Path) -> Result<Store> {
    let journal = journal::Options {
        is_exclusive: true,
        has_background_thread: false,
        ..journal::Options::default()
    };
    let options = store::Options {
        has_background_thread: false,
        journal,
        // The settings of the store's server may keep more than the default.
        exemplars: store::ExemplarOptions::unlimited(),
        traces: store::TraceOptions::unlimited(),
        ..store::Options::default()
    };
    let store = Store::open(Arc::new(OsDisk), dir, &options).map_err(with_dir(dir))?;
    let opened = store.journal().recovery_report();
    for gap in &opened.gaps {
        print_message(format_args!(
            "{}: recovered on open: {}",
            dir.display(),
            journal_format::describe_gap(gap)
        ));
    }
    for file in &opened.damaged_files {
        print_message(format_args!("{}: recovered on open: {file}", dir.display()));
    }
    Ok(store)
}

/// Error of the store with its directory, mentioned once; adds a remedy where the library gives
/// none.
pub fn with_dir(dir: &Path) -> impl Fn(Error) -> anyhow::Error {
    let (name, quoted) = (dir.display().to_string(), shell_quote(dir));
    // Of the data directory of a server.
    let inner = Some(dir.join(STORE_DIR)).filter(|inner| inner.is_dir());
    let inner = inner.map(|inner| shell_quote(&inner));
    move |error| match &error {
        Error::NotFound { .. } => match &inner {
            Some(inner) => anyhow!("{error}; did you mean {inner}?"),
            None => anyhow!("{error}; create it with `topdeck store create {quoted}`"),
        },
        Error::InUse { dir } => match server_of(dir) {
            Some(url) => anyhow!(
                "{error} (a server uses this store at {url}; use --server {url} instead of the \
                 directory)"
            ),
            None => anyhow!("{error} (find it with `fuser {quoted}/lock`)"),
        },
        Error::Io { .. }
        | Error::AlreadyExists { .. }
        | Error::Version { .. }
        | Error::Manifest { .. }
        | Error::NotASnapshot { .. }
        | Error::WrongJournal { .. } => anyhow!("{error}"),
        Error::Journal(journal::Error::Full(full)) => {
            let full = journal_format::full_message(&format!("{quoted}/journal"), full);
            anyhow!("{name}: the store's journal is full: {full}")
        }
        Error::Journal(inner) => anyhow!("{name}: the store's journal: {inner}"),
        other => anyhow!("{name}: {other}"),
    }
}

/// Selector with its source text.
#[derive(Clone, Debug)]
pub struct ParsedSelector {
    /// As given.
    pub text: String,
    /// Parsed.
    pub selector: Selector,
}

impl ParsedSelector {
    /// Parses a selector of the command line.
    pub fn parse(text: &str) -> Result<ParsedSelector, String> {
        Ok(ParsedSelector { text: text.to_owned(), selector: parse_selector(text)? })
    }
}

/// Parses a selector of the command line.
pub fn parse_selector(text: &str) -> Result<Selector, String> {
    Selector::parse(text).map_err(|error| format!("{error}; docs/selectors.md has the grammar"))
}

/// Series of a selector; if there are none, the error lists existing ones.
pub fn find_series(
    view: &ReadView,
    dir: &Path,
    selector: &Selector,
) -> Result<Vec<SeriesEntryRef>> {
    let found = view.select(selector);
    if !found.is_empty() {
        return Ok(found);
    }
    let summary = SelectionSummary::read(view, selector, &(i64::MIN..i64::MAX));
    let summary = summary.map_err(|error| match error {
        query::Error::Store(error) => with_dir(dir)(error),
        error => anyhow!("{}: {error}", dir.display()),
    })?;
    Err(no_match_error(&dir.display().to_string(), selector, &summary))
}

/// Error of a selector without series: why, and which metrics exist. `source` is the directory of
/// the store, or the URL of the server.
pub fn no_match_error(
    source: &str,
    selector: &Selector,
    summary: &SelectionSummary,
) -> anyhow::Error {
    let selector = query::selector_text(selector);
    let missing = if summary.has_gaps { "; it may be in a known gap" } else { "" };
    let others = match summary.metric_count {
        0 => "the store has no other series".to_owned(),
        n => {
            let names = summary.metrics.join(", ");
            match n.saturating_sub(summary.metrics.len() as u64) {
                0 => format!("available: {names}"),
                more => format!("available: {names}, and {more} more"),
            }
        }
    };
    if let Some((deleted, first)) = &summary.deleted {
        let example = if *deleted > 1 { "such as " } else { "" };
        return anyhow!(
            "{source}: {selector} matches no series with samples: all samples of {} \
             ({example}{first}) were deleted or have expired; {others}{missing}",
            plural(*deleted, "series", "series"),
        );
    }
    match (&summary.hint, summary.metric_count) {
        (None, 0) => {
            anyhow!("{source}: the store is empty; import data with `topdeck import`{missing}")
        }
        (hint, _) => {
            let others = hint.as_ref().unwrap_or(&others);
            anyhow!("{source}: {selector} matches no series; {others}{missing}")
        }
    }
}

/// Histograms that are left out because they have no unit.
pub fn left_out_text(unitless: &UnitlessSeries) -> String {
    let n = plural(unitless.series, "series", "series");
    format!("{n} without a unit left out, such as {}", unitless.example)
}
