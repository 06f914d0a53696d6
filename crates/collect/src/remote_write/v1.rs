//! `prometheus.WriteRequest`.
//!
//! ```text
//! WriteRequest  1 timeseries (TimeSeries), 3 metadata, of families and not of series: passed by
//! TimeSeries    1 labels (Label: 1 name, 2 value), 2 samples, 3 exemplars, 4 histograms
//! Sample        1 value (double), 2 timestamp (ms)
//! ```
//! A series is known again by the bytes of its labels.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::protobuf::Message;

use super::told::{Told, Type};
use super::writing::{InRequest, Writing};
use super::{Version, Written};
use crate::rows::Rows;
use crate::trouble::{Place, Trouble};

pub(super) fn read(body: &[u8], rows: &mut dyn Rows) -> Result<Written, Trouble> {
    let mut writing = Writing::new(rows);
    let mut request = Message::new(body);
    let mut key = Vec::new();
    while let Some((number, field)) = request.field()? {
        match number {
            1 => series(field.message()?, &mut key, &mut writing)?,
            // Read as one of version 1 nothing of it would be found, and nothing be said.
            4 | 5 => {
                let found = "one of version 2";
                return Err(Trouble::new(Place::Byte(0), "a request of version 1", found));
            }
            _ => {}
        }
    }
    Ok(writing.written)
}

fn series(
    message: Message<'_>,
    key: &mut Vec<u8>,
    writing: &mut Writing<'_>,
) -> Result<(), Trouble> {
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
        let told = Labels(message);
        let mut series = InRequest { version: Version::V1, told: &told, key, created: 0 };
        writing.series(others, &mut series)?;
    }
    Ok(())
}

struct Labels<'a>(Message<'a>);

impl Told for Labels<'_> {
    fn labels<'a>(&'a self, each: &mut dyn FnMut(&'a [u8], &'a [u8])) -> Result<(), Trouble> {
        let mut fields = self.0.clone();
        while let Some((number, field)) = fields.field()? {
            if number != 1 {
                continue;
            }
            let (mut name, mut value) = (&[][..], &[][..]);
            let mut label = field.message()?;
            while let Some((number, field)) = label.field()? {
                match number {
                    1 => name = field.bytes()?,
                    2 => value = field.bytes()?,
                    _ => {}
                }
            }
            each(name, value);
        }
        Ok(())
    }

    fn family(&self) -> (Type, &[u8]) {
        (Type::default(), &[])
    }
}
