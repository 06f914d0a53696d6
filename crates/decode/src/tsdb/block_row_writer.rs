//! Rows of the chunks of a block: those of a remote write request without metadata.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use codecs::prometheus::RemoteSample;

use super::block_chunk::{BlockChunk, ChunkEncoding};
use super::block_index::IndexSeries;
use super::histogram_chunk::read_histograms;
use super::number_chunk::read_numbers;
use super::tombstones::DeletedRanges;
use crate::input_error::InputError;
use crate::remote_write::request_series::{FamilyType, RequestSeries};
use crate::remote_write::row_writer::{RequestCursor, RequestRowWriter, SeriesCursor};
use crate::remote_write::{RemoteWriteVersion, WriteSummary};
use crate::series_sink::SeriesSink;

/// Writer of the rows of a block.
pub struct BlockRowWriter<'a> {
    writer: RequestRowWriter<'a>,
    /// Labels that are added to each series.
    labels: &'a [(String, String)],
    key: Vec<u8>,
}

impl<'a> BlockRowWriter<'a> {
    /// Writer to a sink; the labels are added to each series.
    pub fn new(sink: &'a mut dyn SeriesSink, labels: &'a [(String, String)]) -> BlockRowWriter<'a> {
        BlockRowWriter { writer: RequestRowWriter::new(sink), labels, key: Vec::new() }
    }

    /// Writes the samples of a chunk, except deleted ones. After an error, the samples before it
    /// are written.
    pub fn write_chunk(
        &mut self,
        series: &IndexSeries<'_>,
        chunk: &BlockChunk<'_>,
        deleted: &DeletedRanges,
    ) -> Result<(), InputError> {
        let source = BlockSeries { labels: &series.labels, added: self.labels };
        source.write_key(&mut self.key);
        let version = RemoteWriteVersion::V1;
        let key = &mut self.key;
        let mut cursor = RequestCursor { version, series: &source, key, created: 0 };
        let (writer, mut at) = (&mut self.writer, SeriesCursor::Start);
        match chunk.encoding {
            ChunkEncoding::Numbers => read_numbers(chunk, &mut |time, value| {
                if !deleted.contains(time) {
                    writer.write_value(value, (0, time), &mut cursor, &mut at);
                }
            }),
            ChunkEncoding::Histograms | ChunkEncoding::FloatHistograms => {
                read_histograms(chunk, &mut |histogram| {
                    if !deleted.contains(histogram.timestamp) {
                        let sample = RemoteSample::from_message(&histogram);
                        writer.write_histogram_sample(sample, &mut cursor, &mut at);
                    }
                })
            }
        }
    }

    /// Counts so far.
    pub fn summary(&self) -> &WriteSummary {
        &self.writer.summary
    }
}

struct BlockSeries<'a> {
    labels: &'a [(&'a [u8], &'a [u8])],
    added: &'a [(String, String)],
}

impl BlockSeries<'_> {
    /// The first byte is for the kind of samples.
    fn write_key(&self, key: &mut Vec<u8>) {
        key.clear();
        key.push(0);
        let _ = self.for_each_label(&mut |name, value| {
            for part in [name, value] {
                key.extend_from_slice(&(part.len() as u32).to_le_bytes());
                key.extend_from_slice(part);
            }
        });
    }
}

impl RequestSeries for BlockSeries<'_> {
    fn for_each_label<'a>(
        &'a self,
        each: &mut dyn FnMut(&'a [u8], &'a [u8]),
    ) -> Result<(), InputError> {
        self.labels.iter().for_each(|(name, value)| each(name, value));
        self.added.iter().for_each(|(name, value)| each(name.as_bytes(), value.as_bytes()));
        Ok(())
    }

    fn family(&self) -> (FamilyType, &[u8]) {
        (FamilyType::default(), &[])
    }
}
