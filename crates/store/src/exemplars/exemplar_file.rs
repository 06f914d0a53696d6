//! File of the exemplars: `exemplars` in the store's directory, replaced as a whole.
//!
//! ```text
//! magic    8      "tdexempl"
//! version  u32    1
//! blocks, until the end, each:
//!   length   u32  of the exemplars
//!   checksum u32  CRC-32C of the exemplars
//!   exemplars     as in a batch (docs/formats/batch.md)
//! ```
//! Numbers are little-endian. A block whose checksum does not match is left out, and so is the rest
//! of a file that ends within a block. `docs/formats/exemplars.md` is the specification.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::Disk;
use model::wire::WireReader;
use model::{ExemplarReader, ExemplarWriter};

use super::reservoir::Reservoir;
use crate::error::Result;

const NAME: &str = "exemplars";
const MAGIC: [u8; 8] = *b"tdexempl";
const VERSION: u32 = 1;
/// Size of a block: damage costs one.
const BLOCK_BYTES: usize = 256 << 10;
/// A file of another program or of a larger budget is not read beyond this size.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The file.
pub(crate) struct ExemplarFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl ExemplarFile {
    pub(crate) fn new(disk: Arc<dyn Disk>, store: &Path) -> ExemplarFile {
        ExemplarFile { disk, path: store.join(NAME) }
    }

    pub(crate) fn replace(&self, bytes: &[u8]) -> Result<()> {
        Ok(disk::replace_file(&*self.disk, &self.path, bytes)?)
    }

    /// Offers the exemplars of the file; returns what is wrong with it. The store opens without
    /// them.
    pub(crate) fn read_into(&self, reservoir: &mut Reservoir, now: i64) -> Option<String> {
        let problem = match disk::read_file(&*self.disk, &self.path, FILE_BYTES_MAX) {
            Ok(None) => return None,
            Ok(Some(bytes)) => decode(&bytes, reservoir, now).err()?,
            Err(error) => error.to_string(),
        };
        Some(format!("exemplars are missing: {}: {problem}", self.path.display()))
    }
}

/// Encodes all exemplars.
pub(crate) fn encode(reservoir: &Reservoir) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    let mut writer = ExemplarWriter::default();
    let all = |_: &_| true;
    for found in reservoir.matches(&(i64::MIN..i64::MAX), &all) {
        writer.push(found.series, &found.kept.exemplar);
        if writer.bytes().len() >= BLOCK_BYTES {
            put_block(&mut out, &std::mem::take(&mut writer));
        }
    }
    if !writer.is_empty() {
        put_block(&mut out, &writer);
    }
    out
}

fn put_block(out: &mut Vec<u8>, writer: &ExemplarWriter) {
    let bytes = writer.bytes();
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn decode(bytes: &[u8], reservoir: &mut Reservoir, now: i64) -> Result<(), String> {
    let mut reader = WireReader::new(bytes);
    let text = |error: model::Error| error.to_string();
    if reader.array::<8>("magic").map_err(text)? != MAGIC {
        return Err("it is not a file of exemplars".to_owned());
    }
    let version = reader.u32("version").map_err(text)?;
    if version != VERSION {
        return Err(format!("version {version}, expected {VERSION}"));
    }
    let mut damaged = 0_u64;
    while !reader.is_empty() {
        let length = reader.u32("block").map_err(text)?;
        let checksum = reader.u32("checksum").map_err(text)?;
        let block = reader.read_bytes(length as usize, "block").map_err(text)?;
        let is_intact = crc32c::crc32c(block) == checksum;
        let exemplars: Result<Vec<_>, _> = ExemplarReader::new(block).collect();
        match exemplars {
            Ok(exemplars) if is_intact => {
                exemplars.into_iter().for_each(|(id, exemplar)| reservoir.offer(id, exemplar, now));
            }
            _ => damaged = damaged.saturating_add(1),
        }
    }
    match damaged {
        0 => Ok(()),
        blocks => Err(format!("{blocks} blocks are damaged")),
    }
}

#[cfg(test)]
mod tests {
    use model::{Exemplar, ExemplarAttributes, ExemplarSource, SeriesId};
    use sim::SimDisk;

    use super::super::ExemplarOptions;
    use super::*;
    use crate::resolution::MINUTE;

    const NOW: i64 = 30 * MINUTE;

    fn filled() -> Reservoir {
        let mut reservoir = Reservoir::new(ExemplarOptions::default(), 1);
        for number in 0..20_000_u64 {
            let exemplar = Exemplar {
                time: (number / 9 % 30) as i64 * MINUTE,
                value: 1.5_f64.powi((number / 270 % 37) as i32) + number as f64 * 1e-9,
                trace_id: u128::from(number + 1).to_le_bytes(),
                span_id: [0; 8],
                attributes: ExemplarAttributes::new([("user", "somebody")]).0,
                source: ExemplarSource::Otlp,
            };
            reservoir.offer(SeriesId([(number % 9) as u8; 16]), exemplar, NOW);
        }
        reservoir
    }

    fn listed(reservoir: &Reservoir) -> Vec<String> {
        let all = |_: &_| true;
        let found = reservoir.matches(&(i64::MIN..i64::MAX), &all);
        let mut texts: Vec<String> = found.map(|found| format!("{found:?}")).collect();
        texts.sort();
        texts
    }

    #[test]
    fn exemplars_of_a_file_are_those_that_were_saved() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        let dir = Path::new("/store");
        disk.create_dir(dir).unwrap();
        let file = ExemplarFile::new(Arc::clone(&disk), dir);
        let empty = || Reservoir::new(ExemplarOptions::default(), 1);
        let mut read = empty();
        assert_eq!(file.read_into(&mut read, NOW), None, "no file is no damage");
        let saved = filled();
        let bytes = encode(&saved);
        assert!(bytes.len() > BLOCK_BYTES, "{} bytes", bytes.len());
        file.replace(&bytes).unwrap();
        assert_eq!(file.read_into(&mut read, NOW), None);
        assert_eq!(listed(&read), listed(&saved));
        // Reading it again changes nothing.
        assert_eq!(file.read_into(&mut read, NOW), None);
        assert_eq!(listed(&read), listed(&saved));
        let check = |bytes: &[u8], part: &str, min: u64| {
            file.replace(bytes).unwrap();
            let mut read = empty();
            let problem = file.read_into(&mut read, NOW).unwrap();
            assert!(problem.contains(part), "{problem}");
            assert!(read.stat().exemplars >= min, "{} exemplars", read.stat().exemplars);
        };
        check(b"", "magic at byte 0 is truncated", 0);
        check(b"something else", "it is not a file of exemplars", 0);
        let mut flipped = bytes.clone();
        flipped[100] ^= 1;
        check(&flipped, "1 blocks are damaged", 1);
        check(&bytes[..bytes.len() - 1], "block at byte", 1);
        let mut later = bytes;
        later[8] = 2;
        check(&later, "version 2, expected 1", 0);
    }
}
