//! Number of store reads of a query.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use hist::Mixture;
use model::Selector;
use query::{Result, SeriesHandle, SeriesPoint, Settings, Source, SourceRead};
use store::{NumberAggregate, TimeGrid};

use super::fixture::CaqlFixture;
use super::{expand_names, question};

struct CountingSource<'a> {
    source: &'a dyn Source,
    reads: AtomicU64,
}

impl CountingSource<'_> {
    fn count(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }
}

impl Source for CountingSource<'_> {
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        self.source.select(selector)
    }

    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
        self.count();
        self.source.samples(series, range)
    }

    fn histograms(&self, series: &[&SeriesHandle], grid: TimeGrid) -> Result<SourceRead<Mixture>> {
        self.count();
        self.source.histograms(series, grid)
    }

    fn histograms_by_start(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<SourceRead<Mixture>> {
        self.count();
        self.source.histograms_by_start(series, grid)
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>> {
        self.count();
        self.source.numbers(series, grid)
    }
}

#[track_caller]
fn check(text: &str, expected: u64) {
    CaqlFixture::get(|source| {
        let counted = CountingSource { source, reads: AtomicU64::new(0) };
        let text = expand_names(text);
        query::execute(&counted, &question(&text), &Settings::default(), &|| false).unwrap();
        assert_eq!(counted.reads.into_inner(), expected, "{text}");
    });
}

#[test]
fn merged_series_are_read_together() {
    check(r#"find:histogram("lat")"#, 2);
    check(r#"find:histogram("lat") | histogram:merge()"#, 1);
    check(r#"find:histogram("lat") | group_by:merge("host")"#, 2);
    check(r#"find:histogram("lat") | group_by:merge("dc")"#, 1);
    check(r#"find:histogram("nothing") | histogram:merge()"#, 0);
}

#[test]
fn duplicate_sources_are_read_once() {
    let merged = r#"find:histogram("lat") | histogram:merge()"#;
    check(&format!("pass{{{merged} | histogram:percentile(99), {merged} | histogram:count()}}"), 1);
    check("A + A * (A - 1)", 1);
    // Another time range is a separate read.
    check("pass{A, A | delay(1m)}", 2);
}
