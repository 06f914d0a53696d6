//! How often a store is asked for what a question needs.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use hist::Mixture;
use model::Selector;
use query::{Handle, Read, Reading, Result, Settings, Source};
use store::{Grid, Summary};

use super::fixture::Fixture;
use super::{question, written_out};

struct Counted<'a> {
    source: &'a dyn Source,
    reads: AtomicU64,
}

impl Counted<'_> {
    fn count(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }
}

impl Source for Counted<'_> {
    fn select(&self, selector: &Selector) -> Result<Vec<Handle>> {
        self.source.select(selector)
    }

    fn readings(&self, series: &Handle, range: Range<i64>) -> Result<Read<Reading>> {
        self.count();
        self.source.readings(series, range)
    }

    fn histograms(&self, series: &[&Handle], grid: Grid) -> Result<Read<Mixture>> {
        self.count();
        self.source.histograms(series, grid)
    }

    fn histograms_by_start(&self, series: &[&Handle], grid: Grid) -> Result<Read<Mixture>> {
        self.count();
        self.source.histograms_by_start(series, grid)
    }

    fn numbers(&self, series: &[&Handle], grid: Grid) -> Result<Read<Option<Summary>>> {
        self.count();
        self.source.numbers(series, grid)
    }
}

#[track_caller]
fn check(text: &str, expected: u64) {
    Fixture::get(|source| {
        let counted = Counted { source, reads: AtomicU64::new(0) };
        let text = written_out(text);
        query::ask(&counted, &question(&text), &Settings::default(), &|| false).unwrap();
        assert_eq!(counted.reads.into_inner(), expected, "{text}");
    });
}

#[test]
fn what_is_merged_is_read_together() {
    check(r#"find:histogram("lat")"#, 2);
    check(r#"find:histogram("lat") | histogram:merge()"#, 1);
    check(r#"find:histogram("lat") | group_by:merge("host")"#, 2);
    check(r#"find:histogram("lat") | group_by:merge("dc")"#, 1);
    check(r#"find:histogram("nothing") | histogram:merge()"#, 0);
}

#[test]
fn what_stands_twice_is_read_once() {
    let merged = r#"find:histogram("lat") | histogram:merge()"#;
    check(&format!("pass{{{merged} | histogram:percentile(99), {merged} | histogram:count()}}"), 1);
    check("A + A * (A - 1)", 1);
    // Another time is another reading.
    check("pass{A, A | delay(1m)}", 2);
}
