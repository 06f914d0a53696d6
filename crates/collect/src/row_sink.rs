//! Row sink trait: rows grouped by series.

use model::{Gap, Result, Sample, Series};

/// Sink of rows, in input order.
pub trait RowSink {
    /// What follows is of the series that `key` stands for, up to the next call. The same key is
    /// always the same series, so that `series` is asked only when the key is not known yet. A key
    /// holds everything that `series` is made of, the kind included. After an error there is no
    /// series: samples have to wait for the next.
    fn series(&mut self, key: &[u8], series: &mut dyn FnMut() -> Result<Series>) -> Result<()>;
    /// A sample of that series.
    fn sample(&mut self, sample: &Sample) -> Result<()>;
    /// Something that is known to be missing.
    fn gap(&mut self, gap: Gap);
}

/// Recording sink for tests.
#[derive(Debug, Default)]
pub struct VecRowSink {
    /// Samples with their series, in the order in which they came.
    pub rows: Vec<(Series, Sample)>,
    /// Gaps.
    pub gaps: Vec<Gap>,
    known: std::collections::HashMap<Vec<u8>, Series>,
    series: Option<Series>,
}

impl RowSink for VecRowSink {
    fn series(&mut self, key: &[u8], series: &mut dyn FnMut() -> Result<Series>) -> Result<()> {
        self.series = None;
        let found = match self.known.get(key) {
            Some(known) => known.clone(),
            None => {
                let found = series()?.validate()?;
                self.known.insert(key.to_owned(), found.clone());
                found
            }
        };
        self.series = Some(found);
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) -> Result<()> {
        let series = self.series.clone().expect("BUG: a sample before its series");
        self.rows.push((series, sample.clone()));
        Ok(())
    }

    fn gap(&mut self, gap: Gap) {
        self.gaps.push(gap);
    }
}
