//! Samples of a request on their way into rows.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::codec::prometheus::{RemoteHistogram, ResetHint, STALE_MARKER, Sample as Native};
use hist::protobuf::{Field, Message};
use model::{Sample, Value};

use super::told::{self, Told, What};
use super::{Version, Written};
use crate::place::TROUBLES_MAX;
use crate::rows::Rows;
use crate::trouble::Trouble;

const NANOSECONDS: i64 = 1_000_000;

/// Hands rows on and counts them.
pub(super) struct Writing<'a> {
    rows: &'a mut dyn Rows,
    pub(super) written: Written,
}

/// A series in the middle of a request.
pub(super) struct InRequest<'a> {
    pub(super) version: Version,
    pub(super) told: &'a dyn Told,
    /// What stands for it; the first byte says which of its values.
    pub(super) key: &'a mut [u8],
    /// Since when it counts, in milliseconds, where samples do not say; 0 if nobody does.
    pub(super) created: i64,
}

/// Which series `rows` is at.
enum At {
    Nothing,
    Values(What),
    /// It is none, and that has been said.
    Refused,
}

impl<'a> Writing<'a> {
    pub(super) fn new(rows: &'a mut dyn Rows) -> Writing<'a> {
        Writing { rows, written: Written::default() }
    }

    pub(super) fn refuse(&mut self, why: impl FnOnce() -> String) {
        self.written.refused = self.written.refused.saturating_add(1);
        if self.written.troubles.len() < TROUBLES_MAX {
            self.written.troubles.push(why());
        }
    }

    /// All samples and histograms among the fields of a series. Whether there were any.
    pub(super) fn series(
        &mut self,
        mut fields: Message<'_>,
        series: &mut InRequest<'_>,
    ) -> Result<bool, Trouble> {
        let mut at = At::Nothing;
        let mut any = false;
        while let Some((number, field)) = fields.field()? {
            match (number, series.version) {
                (2, _) => self.number(field, series, &mut at)?,
                (4, Version::V1) | (3, Version::V2) => self.histogram(field, series, &mut at)?,
                _ => continue,
            }
            any = true;
        }
        Ok(any)
    }

    /// Goes to the series of such values. Of a series that is none the reason is said once.
    fn go(&mut self, what: What, series: &mut InRequest<'_>, at: &mut At) -> bool {
        match at {
            At::Values(held) if *held == what => return true,
            At::Refused => {
                self.written.refused = self.written.refused.saturating_add(1);
                return false;
            }
            At::Nothing | At::Values(_) => {}
        }
        series.key[0] = what as u8;
        let mut why = None;
        let told = series.told;
        let made = self.rows.series(series.key, &mut || {
            told::series(what, told).map_err(|reason| {
                why = Some(reason);
                model::Error::Truncated { offset: 0, field: "series" }
            })
        });
        let Err(error) = made else {
            *at = At::Values(what);
            return true;
        };
        *at = At::Refused;
        let why = why.unwrap_or_else(|| error.to_string());
        self.refuse(|| format!("{}: {why}", told::described(told)));
        false
    }

    fn number(
        &mut self,
        field: Field<'_>,
        series: &mut InRequest<'_>,
        at: &mut At,
    ) -> Result<(), Trouble> {
        let (mut value, mut time, mut start) = (0.0, 0, series.created);
        let mut fields = field.message()?;
        while let Some((number, field)) = fields.field()? {
            match number {
                1 => value = field.double()?,
                2 => time = field.varint()? as i64,
                3 if series.version == Version::V2 => start = field.varint()? as i64,
                _ => {}
            }
        }
        if !self.go(What::Numbers, series, at) {
            return Ok(());
        }
        let counts = start != 0 && {
            let name = told::name(series.told).unwrap_or_default();
            series.told.family().0.counts(name)
        };
        let start = if counts { start } else { 0 };
        if self.sample(series, (start, time), Value::Number(value)) {
            self.written.samples = self.written.samples.saturating_add(1);
        }
        Ok(())
    }

    fn histogram(
        &mut self,
        field: Field<'_>,
        series: &mut InRequest<'_>,
        at: &mut At,
    ) -> Result<(), Trouble> {
        let read = RemoteHistogram::from_bytes(field.bytes()?).and_then(|message| {
            let value = match message.to_sample()? {
                Native::Integer(histogram) => Some(histogram),
                Native::Float(float) => Some(float.to_histogram()?),
                Native::Stale => None,
            };
            Ok((message, value))
        });
        let (message, value) = match read {
            Ok(read) => read,
            Err(error) => {
                self.refuse(|| format!("{}: {error}", told::described(series.told)));
                return Ok(());
            }
        };
        let is_gauge = message.reset_hint == ResetHint::Gauge as i32;
        let start = match message.start_timestamp {
            _ if is_gauge || value.is_none() => 0,
            0 => series.created,
            start => start,
        };
        let (what, value) = match value {
            None => (What::Ends, Value::Number(f64::from_bits(STALE_MARKER))),
            Some(histogram) if is_gauge => (What::GaugeHistograms, boxed(histogram)),
            Some(histogram) => (What::Histograms, boxed(histogram)),
        };
        if self.go(what, series, at) && self.sample(series, (start, message.timestamp), value) {
            self.written.histograms = self.written.histograms.saturating_add(1);
        }
        Ok(())
    }

    /// A value with its start, 0 where nobody says, and its time in milliseconds. Whether it was taken.
    #[inline]
    fn sample(&mut self, series: &InRequest<'_>, times: (i64, i64), value: Value) -> bool {
        let (start, time) = times;
        let Some(end) = time.checked_mul(NANOSECONDS) else {
            self.refuse(|| {
                let name = told::described(series.told);
                format!("{name}: it is of {time} ms, which nanoseconds in 64 bits do not reach")
            });
            return false;
        };
        // A start after the end says that clocks differ, and not since when it counts.
        let start = match start.checked_mul(NANOSECONDS) {
            Some(start) if start != 0 && start < end => start,
            _ => end,
        };
        let taken = self.rows.sample(&Sample { start, end, value });
        if let Err(error) = &taken {
            self.refuse(|| error.to_string());
        }
        taken.is_ok()
    }
}

fn boxed(histogram: hist::Histogram) -> Value {
    Value::Histogram(Box::new(histogram))
}
