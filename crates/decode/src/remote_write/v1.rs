//! `prometheus.WriteRequest`.
//!
//! ```text
//! WriteRequest  1 timeseries (TimeSeries), 3 metadata (per family, not per series; ignored)
//! TimeSeries    1 labels (Label: 1 name, 2 value), 2 samples, 3 exemplars, 4 histograms
//! Sample        1 value (double), 2 timestamp (ms)
//! ```
//!
//! A series is identified by the bytes of its labels.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use codecs::protobuf::{FieldValue, MessageReader};

use super::request_series::{FamilyType, RequestSeries};
use super::row_writer::{RequestCursor, RequestRowWriter};
use super::{RemoteWriteVersion, WriteSummary};
use crate::exemplar::label_text;
use crate::input_error::{InputError, InputPosition};
use crate::series_sink::SeriesSink;

pub(super) fn read_request(
    body: &[u8],
    sink: &mut dyn SeriesSink,
) -> Result<WriteSummary, InputError> {
    let mut writing = RequestRowWriter::new(sink);
    let mut request = MessageReader::new(body);
    let mut key = Vec::new();
    while let Some((number, field)) = request.field()? {
        match number {
            1 => read_series(field.message()?, &mut key, &mut writing)?,
            3 => read_metadata(field.message()?, &mut writing)?,
            // Decoded as version 1, a request of version 2 would be empty without an error.
            4 | 5 => {
                let found = "a request of version 2";
                return Err(InputError::new(
                    InputPosition::Byte(0),
                    "a request of version 1",
                    found,
                ));
            }
            _ => {}
        }
    }
    Ok(writing.summary)
}

/// Reads the name and the help text of a metric family.
fn read_metadata(
    mut fields: MessageReader<'_>,
    writing: &mut RequestRowWriter<'_>,
) -> Result<(), InputError> {
    let (mut name, mut help) = ("", "");
    while let Some((number, field)) = fields.field()? {
        match number {
            2 => name = field.text()?,
            4 => help = field.text()?,
            _ => {}
        }
    }
    writing.describe(name, help);
    Ok(())
}

fn read_series(
    message: MessageReader<'_>,
    key: &mut Vec<u8>,
    writing: &mut RequestRowWriter<'_>,
) -> Result<(), InputError> {
    key.clear();
    key.push(0);
    let mut fields = message.clone();
    let mut others = None;
    loop {
        let here = fields.clone();
        match fields.field()? {
            None => break,
            Some((1, label)) => {
                let label = label.bytes()?;
                key.extend_from_slice(&(label.len() as u32).to_le_bytes());
                key.extend_from_slice(label);
            }
            Some(_) => others = others.or(Some(here)),
        }
    }
    if let Some(others) = others {
        let source = V1Series(message);
        let mut series =
            RequestCursor { version: RemoteWriteVersion::V1, series: &source, key, created: 0 };
        writing.write_series(others, &mut series)?;
    }
    Ok(())
}

struct V1Series<'a>(MessageReader<'a>);

impl RequestSeries for V1Series<'_> {
    fn for_each_label<'a>(
        &'a self,
        each: &mut dyn FnMut(&'a [u8], &'a [u8]),
    ) -> Result<(), InputError> {
        let mut fields = self.0.clone();
        while let Some((number, field)) = fields.field()? {
            if number != 1 {
                continue;
            }
            let (name, value) = read_label(field)?;
            each(name, value);
        }
        Ok(())
    }

    fn family(&self) -> (FamilyType, &[u8]) {
        (FamilyType::default(), &[])
    }

    fn exemplar_labels(&self, field: FieldValue<'_>, texts: &mut Vec<String>) -> Option<()> {
        let (name, value) = read_label(field).ok()?;
        texts.extend([label_text(name)?, label_text(value)?]);
        Some(())
    }
}

fn read_label(field: FieldValue<'_>) -> Result<(&[u8], &[u8]), InputError> {
    let (mut name, mut value) = (&[][..], &[][..]);
    let mut label = field.message()?;
    while let Some((number, field)) = label.field()? {
        match number {
            1 => name = field.bytes()?,
            2 => value = field.bytes()?,
            _ => {}
        }
    }
    Ok((name, value))
}
