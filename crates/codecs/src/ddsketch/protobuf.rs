//! The protobuf form: the messages of `DDSketch.proto`.
//!
//! Counts of a bin in the map and in the packed list are added. The writer uses the shorter of the
//! two, and writes both stores even if empty, because sketches-go requires them. Unknown fields are
//! skipped.
//!
//! Source: sketches-java `src/protobuf/proto/DDSketch.proto`; field numbers and types only.

use std::collections::BTreeMap;

use hist::{Buckets, DecodeError, EncodeError, Histogram, Logarithmic};

use crate::message;
use crate::protobuf::{Error, FieldValue, MessageFields, MessageWriter};

use super::{Sketch, SketchStore, grid_of, interpolation_number, interpolation_of};

/// Size of a bin in the map: key and value with their tags, length and tag of the entry.
const MAP_ENTRY_LEN: u64 = 14;
/// Size of a bin in the packed list.
const LIST_ENTRY_LEN: u64 = 8;

#[derive(Clone, Debug, Default, PartialEq)]
struct SketchMessage {
    mapping: Option<MappingMessage>,
    positive_values: Option<StoreMessage>,
    negative_values: Option<StoreMessage>,
    zero_count: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct MappingMessage {
    gamma: f64,
    index_offset: f64,
    interpolation: i32,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct StoreMessage {
    bin_counts: BTreeMap<i32, f64>,
    contiguous_bin_counts: Vec<f64>,
    contiguous_bin_index_offset: i32,
}

/// An entry of the map.
#[derive(Debug, Default)]
struct BinMessage {
    index: i32,
    count: f64,
}

impl MessageFields for SketchMessage {
    fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error> {
        match number {
            1 => self.mapping.get_or_insert_default().merge(field.message()?)?,
            2 => self.positive_values.get_or_insert_default().merge(field.message()?)?,
            3 => self.negative_values.get_or_insert_default().merge(field.message()?)?,
            4 => self.zero_count = field.double()?,
            _ => {}
        }
        Ok(())
    }

    fn put(&self, out: &mut MessageWriter) {
        out.messages(1, &self.mapping);
        out.messages(2, &self.positive_values);
        out.messages(3, &self.negative_values);
        out.double(4, self.zero_count);
    }
}

impl MessageFields for MappingMessage {
    fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error> {
        match number {
            1 => self.gamma = field.double()?,
            2 => self.index_offset = field.double()?,
            3 => self.interpolation = field.varint()? as i32,
            _ => {}
        }
        Ok(())
    }

    fn put(&self, out: &mut MessageWriter) {
        out.double(1, self.gamma);
        out.double(2, self.index_offset);
        out.varint(3, self.interpolation as u64);
    }
}

impl MessageFields for StoreMessage {
    fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error> {
        match number {
            1 => {
                let mut bin = BinMessage::default();
                bin.merge(field.message()?)?;
                self.bin_counts.insert(bin.index, bin.count);
            }
            2 => field.doubles(&mut |value| self.contiguous_bin_counts.push(value))?,
            3 => self.contiguous_bin_index_offset = field.zigzag32()?,
            _ => {}
        }
        Ok(())
    }

    fn put(&self, out: &mut MessageWriter) {
        let bin = |(&index, &count)| BinMessage { index, count };
        let bins: Vec<BinMessage> = self.bin_counts.iter().map(bin).collect();
        out.messages(1, &bins);
        out.doubles(2, &self.contiguous_bin_counts);
        out.sint32(3, self.contiguous_bin_index_offset);
    }
}

impl MessageFields for BinMessage {
    fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error> {
        match number {
            1 => self.index = field.zigzag32()?,
            2 => self.count = field.double()?,
            _ => {}
        }
        Ok(())
    }

    fn put(&self, out: &mut MessageWriter) {
        out.sint32(1, self.index);
        out.double(2, self.count);
    }
}

/// Reads the protobuf form. Rejects counts that are not whole. Errors about a field's value have no
/// exact offset: it is 0, or the length of the input.
pub fn decode_protobuf(bytes: &[u8]) -> Result<Histogram, DecodeError> {
    let message: SketchMessage = message::decode(bytes, "DDSketch")?;
    let mut sketch = Sketch::default();
    if let Some(mapping) = message.mapping {
        let interpolation = interpolation_of(mapping.interpolation.into(), 0)?;
        sketch
            .set_grid(Logarithmic::new(mapping.gamma, mapping.index_offset, interpolation)?, 0)?;
    }
    read_store(&mut sketch, SketchStore::Positive, message.positive_values)?;
    read_store(&mut sketch, SketchStore::Negative, message.negative_values)?;
    sketch.zero = Sketch::check_count(message.zero_count, 0, "zero count")?;
    sketch.finish(bytes.len())
}

/// Writes the protobuf form. It has no fields for sum, minimum and maximum.
pub fn encode_protobuf(histogram: &Histogram) -> Result<Vec<u8>, EncodeError> {
    let grid = grid_of(histogram)?;
    let message = SketchMessage {
        mapping: Some(MappingMessage {
            gamma: grid.gamma(),
            index_offset: grid.offset(),
            interpolation: interpolation_number(grid.interpolation()).into(),
        }),
        positive_values: Some(store_message(histogram.positive())),
        negative_values: Some(store_message(histogram.negative())),
        zero_count: histogram.zero_count() as f64,
    };
    Ok(message.to_message())
}

fn read_store(
    sketch: &mut Sketch,
    store: SketchStore,
    message: Option<StoreMessage>,
) -> Result<(), DecodeError> {
    let message = message.unwrap_or_default();
    for (index, count) in message.bin_counts {
        sketch.add(store, index.into(), count, 0)?;
    }
    let first = i64::from(message.contiguous_bin_index_offset);
    for (index, count) in (first..).zip(message.contiguous_bin_counts) {
        sketch.add(store, index, count, 0)?;
    }
    Ok(())
}

fn store_message(buckets: &Buckets) -> StoreMessage {
    let mut message = StoreMessage::default();
    let (Some(&first), Some(&last)) = (buckets.indexes().first(), buckets.indexes().last()) else {
        return message;
    };
    let span = ((i64::from(last).wrapping_sub(i64::from(first))) as u64).wrapping_add(1);
    if span.wrapping_mul(LIST_ENTRY_LEN) > (buckets.len() as u64).wrapping_mul(MAP_ENTRY_LEN) {
        message.bin_counts = buckets.iter().map(|(index, count)| (index, count as f64)).collect();
        return message;
    }
    message.contiguous_bin_index_offset = first;
    message.contiguous_bin_counts = vec![0.0; span as usize];
    for (index, count) in buckets.iter() {
        message.contiguous_bin_counts[index.wrapping_sub(first) as usize] = count as f64;
    }
    message
}
