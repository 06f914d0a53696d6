//! `io.prometheus.write.v2.Request`.
//!
//! ```text
//! Request     4 symbols (text, the first empty), 5 timeseries (TimeSeries); 1 to 3 are those of version 1
//! TimeSeries  1 labels_refs (name, value, …; indexes of symbols), 2 samples, 3 histograms, 4 exemplars,
//!             5 metadata (1 type, 3 help_ref, 4 unit_ref), 6 created_timestamp (ms; the draft rc.3 only)
//! Sample      1 value (double), 2 timestamp (ms), 3 start_timestamp (ms)
//! ```
//!
//! A series is identified by its type, its unit, and the texts of its labels.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use codecs::protobuf::{FieldValue, MessageReader};

use super::request_series::{self, FamilyType, RequestSeries};
use super::row_writer::{RequestCursor, RequestRowWriter};
use super::{RemoteWriteVersion, WriteSummary};
use crate::exemplar::label_text;
use crate::input_error::{InputError, InputPosition};
use crate::series_sink::SeriesSink;

/// Label limit of a series, the name included.
const LABELS_MAX: usize = model::LABELS_MAX + 1;
/// Size limit of the expanded labels of all series of a request. Repeated references to a long
/// symbol could otherwise expand a small request without bound.
const EXPANDED_BYTES_MAX: usize = 64 << 20;

pub(super) fn read_request(
    body: &[u8],
    sink: &mut dyn SeriesSink,
) -> Result<WriteSummary, InputError> {
    let symbols = read_symbols(body)?;
    let mut writing = RequestRowWriter::new(sink);
    let mut request = MessageReader::new(body);
    let mut series = V2Series {
        symbols: &symbols,
        refs: Vec::new(),
        family: FamilyType(0),
        unit: &[],
        budget: EXPANDED_BYTES_MAX,
        described: (0, None),
    };
    let mut key = Vec::new();
    while let Some((number, field)) = request.field()? {
        if number == 5 {
            series.read(field.message()?, &mut key, &mut writing)?;
        }
    }
    Ok(writing.summary)
}

/// Reads all symbols first, because references may precede them.
fn read_symbols(body: &[u8]) -> Result<Vec<&[u8]>, InputError> {
    let mut symbols = Vec::new();
    let mut request = MessageReader::new(body);
    while let Some((number, field)) = request.field()? {
        match number {
            4 => symbols.push(field.bytes()?),
            // Decoded as version 2, a request of version 1 would be empty without an error.
            1 | 3 => {
                let found = "a request of version 1";
                return Err(InputError::new(
                    InputPosition::Byte(0),
                    "a request of version 2",
                    found,
                ));
            }
            _ => {}
        }
    }
    match symbols.first() {
        Some(first) if !first.is_empty() => {
            Err(InputError::new(InputPosition::Byte(0), "an empty first symbol", "another"))
        }
        _ => Ok(symbols),
    }
}

struct V2Series<'a> {
    symbols: &'a [&'a [u8]],
    refs: Vec<u64>,
    family: FamilyType,
    unit: &'a [u8],
    /// Remaining bytes for expanded labels.
    budget: usize,
    /// Symbols of the description passed on last, and of the first label value, which is the name:
    /// series of a metric follow each other.
    described: (u64, Option<u64>),
}

impl<'a> V2Series<'a> {
    /// Passes on the description, which each series of a metric has.
    fn describe(&mut self, help_ref: u64, writing: &mut RequestRowWriter<'_>) {
        let described = (help_ref, self.refs.get(1).copied());
        if std::mem::replace(&mut self.described, described) == described {
            return;
        }
        let text = |at: u64| self.symbol(at).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let pairs = self.refs.as_chunks::<2>().0;
        let name = pairs.iter().find(|[name, _]| text(*name) == Some("__name__"));
        if let (Some([_, name]), Some(help)) = (name, text(help_ref)) {
            writing.describe(text(*name).unwrap_or_default(), help);
        }
    }

    fn read(
        &mut self,
        mut fields: MessageReader<'_>,
        key: &mut Vec<u8>,
        writing: &mut RequestRowWriter<'_>,
    ) -> Result<(), InputError> {
        let (mut unit_ref, mut help_ref) = (0, 0);
        let (mut created, mut others) = (0, None);
        self.refs.clear();
        self.family = FamilyType(0);
        loop {
            let here = fields.clone();
            match fields.field()? {
                None => break,
                Some((1, refs)) => refs.varints(&mut |at| self.refs.push(at))?,
                Some((5, metadata)) => {
                    (self.family, unit_ref, help_ref) = read_family(metadata)?;
                }
                Some((6, time)) => created = time.varint()? as i64,
                Some(_) => others = others.or(Some(here)),
            }
        }
        let unit = self.symbol(unit_ref);
        self.unit = unit.unwrap_or_default();
        let length = unit.and_then(|_| self.expanded_bytes());
        let Some(length) = length else {
            let count = self.symbols.len();
            return self.reject_all(others, writing, || {
                format!(
                    "a series needs at most {LABELS_MAX} label references and a unit, all within \
                     {count} symbols"
                )
            });
        };
        self.budget = self.budget.checked_sub(length).ok_or_else(|| {
            let expected = format!("labels of at most {EXPANDED_BYTES_MAX} bytes in all");
            InputError::new(InputPosition::Byte(0), expected, "more; send fewer series per request")
        })?;
        self.describe(help_ref, writing);
        self.append_key(key);
        let mut series =
            RequestCursor { version: RemoteWriteVersion::V2, series: self, key, created };
        let any = match others {
            Some(others) => writing.write_series(others, &mut series)?,
            None => false,
        };
        if !any {
            let name = || request_series::display_series(self);
            writing.reject(|| format!("{}: neither samples nor histograms", name()));
        }
        Ok(())
    }

    /// Counts the samples of a series that cannot be decoded.
    fn reject_all(
        &self,
        fields: Option<MessageReader<'_>>,
        writing: &mut RequestRowWriter<'_>,
        reason: impl FnOnce() -> String,
    ) -> Result<(), InputError> {
        let mut samples = 0_u64;
        if let Some(mut fields) = fields {
            while let Some((number, _)) = fields.field()? {
                samples = samples.saturating_add((number == 2 || number == 3).into());
            }
        }
        writing.reject(reason);
        let refused = &mut writing.summary.rejected;
        *refused = refused.saturating_add(samples.saturating_sub(1));
        Ok(())
    }

    fn symbol(&self, at: u64) -> Option<&'a [u8]> {
        // The empty symbol always exists, even if not transmitted.
        let symbol = usize::try_from(at).ok().and_then(|at| self.symbols.get(at)).copied();
        symbol.or((at == 0).then_some(&[]))
    }

    /// Expanded size of labels and unit; `None` if a symbol is missing or the size limit is
    /// exceeded.
    fn expanded_bytes(&self) -> Option<usize> {
        if !self.refs.len().is_multiple_of(2) || self.refs.len() > 2 * LABELS_MAX {
            return None;
        }
        let lengths = self.refs.iter().map(|&at| self.symbol(at).map(<[u8]>::len));
        lengths.sum::<Option<usize>>().and_then(|length| length.checked_add(self.unit.len()))
    }

    fn append_key(&self, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&[0, self.family.0]);
        let symbols = self.refs.iter().map(|&at| self.symbol(at).unwrap_or_default());
        for text in [self.unit].into_iter().chain(symbols) {
            key.extend_from_slice(&(text.len() as u32).to_le_bytes());
            key.extend_from_slice(text);
        }
    }
}

impl RequestSeries for V2Series<'_> {
    fn for_each_label<'a>(
        &'a self,
        each: &mut dyn FnMut(&'a [u8], &'a [u8]),
    ) -> Result<(), InputError> {
        for pair in self.refs.as_chunks::<2>().0 {
            let [name, value] = pair.map(|at| self.symbol(at).unwrap_or_default());
            each(name, value);
        }
        Ok(())
    }

    fn family(&self) -> (FamilyType, &[u8]) {
        (self.family, self.unit)
    }

    fn exemplar_labels(&self, field: FieldValue<'_>, texts: &mut Vec<String>) -> Option<()> {
        let (mut texts_max, mut is_valid) = (2 * LABELS_MAX, true);
        let mut add = |at| {
            let text = self.symbol(at).and_then(label_text).filter(|_| texts_max > 0);
            texts_max = texts_max.saturating_sub(1);
            is_valid &= text.is_some();
            texts.extend(text);
        };
        field.varints(&mut add).ok()?;
        is_valid.then_some(())
    }
}

/// Type and symbol index of the unit.
fn read_family(metadata: FieldValue<'_>) -> Result<(FamilyType, u64, u64), InputError> {
    let (mut family, mut unit_ref, mut help_ref) = (FamilyType(0), 0, 0);
    let mut fields = metadata.message()?;
    while let Some((number, field)) = fields.field()? {
        match number {
            1 => family = FamilyType(field.varint()?.try_into().unwrap_or(0)),
            3 => help_ref = field.varint()?,
            4 => unit_ref = field.varint()?,
            _ => {}
        }
    }
    Ok((family, unit_ref, help_ref))
}
