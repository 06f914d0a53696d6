//! Rows on their way into a batch.

use std::sync::Arc;

use collect::Rows;
use model::{BatchWriter, Gap, Sample, Series, Value};
use store::{NewSeries, Store};

use crate::rejections::{Rejection, Rejections};
use crate::series::{Cache, Known};
use crate::way::Way;

/// Puts rows together to a batch. Many small requests make small batches; a batch is taken whole or not at all.
#[derive(Debug)]
pub struct Writer {
    cache: Arc<Cache>,
    pub(crate) batch: BatchWriter,
    /// Series whose form is in the batch.
    pub(crate) told: Vec<Arc<Known>>,
    /// Series that the batch names by number only.
    pub(crate) named: Vec<Arc<Known>>,
    /// Which way the keys of this source are made.
    way: Way,
    /// Whether numbers are enough for series that the journal has.
    by_id: bool,
    key: Vec<u8>,
    /// What a batch may have; beyond, rows are passed over and the whole is refused.
    bytes_max: usize,
    pub(crate) is_too_large: bool,
    /// Single measurements: a histogram's count, one for a number or a text.
    pub(crate) values: u64,
    admission: Option<Admission>,
    /// The series that rows are of now is one of which none are taken.
    rejected: Option<Rejection>,
}

/// Holds new series to the limits of a store.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) store: Arc<Store>,
    /// For whom they count.
    pub(crate) producer: u64,
    pub(crate) rejections: Arc<Rejections>,
    new: NewSeries,
    has_own_gaps: bool,
}

impl Admission {
    pub(crate) fn new(store: Arc<Store>, producer: u64, rejections: Arc<Rejections>) -> Admission {
        Admission { store, producer, rejections, new: NewSeries::default(), has_own_gaps: false }
    }

    /// Why a series is not taken, if it is not because of a limit.
    fn reject(&mut self, series: &Series) -> model::Result<Option<Rejection>> {
        match self.store.admit(&series.form(), self.producer, &mut self.new) {
            Err(store::Error::Cardinality(refused)) => {
                match Rejection::of(&refused, series.name()) {
                    Some(rejection) => Ok(Some(rejection)),
                    None => Err(model::Error::SeriesLimit { why: refused.to_string() }),
                }
            }
            // What is wrong with the store is told when the batch is appended.
            Ok(()) | Err(_) => Ok(None),
        }
    }
}

impl Writer {
    pub(crate) fn new(cache: Arc<Cache>, way: Way, by_id: bool, bytes_max: usize) -> Writer {
        Writer {
            cache,
            batch: BatchWriter::default(),
            told: Vec::new(),
            named: Vec::new(),
            way,
            by_id,
            key: Vec::new(),
            bytes_max,
            is_too_large: false,
            values: 0,
            admission: None,
            rejected: None,
        }
    }

    /// Holds new series to the limits of a store.
    pub(crate) fn held_to(self, admission: Admission) -> Writer {
        Writer { admission: Some(admission), ..self }
    }

    /// Whoever writes says in gaps of its own which samples were not taken: none are made for them here.
    pub fn with_own_gaps(mut self) -> Writer {
        if let Some(admission) = &mut self.admission {
            admission.has_own_gaps = true;
        }
        self
    }

    /// Samples.
    pub fn samples(&self) -> u64 {
        self.batch.len()
    }

    /// Single measurements in them: what histograms have counted, one for a number or a text.
    pub fn values(&self) -> u64 {
        self.values
    }

    /// Bytes so far, about.
    pub fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    /// Whether it is half of what a batch may have: whose rows need not be in one batch begins another.
    pub fn is_half_full(&self) -> bool {
        self.batch.bytes() > self.bytes_max / 2
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && !self.is_too_large
    }
}

impl Rows for Writer {
    fn series(
        &mut self,
        key: &[u8],
        series: &mut dyn FnMut() -> model::Result<Series>,
    ) -> model::Result<()> {
        // Growing any further serves nobody, and who sends it has to be told of the whole.
        self.is_too_large |= self.batch.bytes() > self.bytes_max;
        if self.is_too_large {
            return Ok(());
        }
        self.rejected = None;
        self.key.clear();
        self.key.push(self.way as u8);
        self.key.extend_from_slice(key);
        let known = match self.cache.get(&self.key) {
            Some(known) => {
                if let Some(admission) = &mut self.admission
                    && !known.is_told()
                {
                    self.rejected = admission.reject(&known.series)?;
                }
                known
            }
            None => {
                let series = series()?.checked()?;
                if let Some(admission) = &mut self.admission {
                    self.rejected = admission.reject(&series)?;
                    // What is rejected takes no room from what is stored.
                    if self.rejected.is_some() {
                        return Ok(());
                    }
                }
                self.cache.insert(&self.key, series)
            }
        };
        if self.rejected.is_some() {
            return Ok(());
        }
        if self.by_id && known.is_told() {
            self.batch.known_series(known.id, &known.series);
            self.named.push(known);
        } else {
            self.batch.series(&known.series);
            self.told.push(known);
        }
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) -> model::Result<()> {
        self.is_too_large |= self.batch.bytes() > self.bytes_max;
        if self.is_too_large {
            return Ok(());
        }
        if let (Some(rejection), Some(admission)) = (&self.rejected, &self.admission) {
            match admission.has_own_gaps {
                true => admission.rejections.count(rejection, 1),
                false => admission.rejections.add(admission.producer, rejection, sample),
            }
            return Err(model::Error::SeriesLimit { why: rejection.why.clone() });
        }
        self.batch.sample(sample)?;
        self.values = self.values.saturating_add(match &sample.value {
            Value::Histogram(histogram) => histogram.count(),
            Value::Number(_) | Value::Text(_) => 1,
        });
        Ok(())
    }

    fn gap(&mut self, gap: Gap) {
        self.batch.gap(gap);
    }
}
