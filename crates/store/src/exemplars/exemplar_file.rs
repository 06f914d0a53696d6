//! File of the exemplars: `exemplars` in the store's directory, replaced as a whole.
//!
//! ```text
//! magic    8      "tdexempl"
//! version  u32    2
//! complete i64    exemplars before this time may be missing; not in version 1
//! checksum u32    CRC-32C of the bytes before; not in version 1
//! blocks, until the end, each:
//!   length   u32  of the exemplars
//!   checksum u32  CRC-32C of the exemplars
//!   exemplars     as in a batch (docs/formats/batch.md)
//! ```
//! Numbers are little-endian. A block whose checksum does not match is left out, and so is the rest
//! of a file that ends within a block. A wrong length is noticed by its block's checksum or by the
//! end of the file, and costs the blocks after it, too.
//! `docs/formats/exemplars.md` is the specification.

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
const VERSION: u32 = 2;
/// The oldest version read.
const VERSION_OLDEST: u32 = 1;
/// Size from which a block is complete: damage costs the exemplars of its block only.
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
    /// them, and says that those before `now` may be missing. A store without exemplars has no
    /// file, and neither has a restored one.
    pub(crate) fn read_into(
        &self,
        reservoir: &mut Reservoir,
        (now, is_restored): (i64, bool),
    ) -> Option<String> {
        let decoded = match disk::read_file(&*self.disk, &self.path, FILE_BYTES_MAX) {
            Ok(None) if is_restored => {
                reservoir.set_incomplete_before(now);
                return None;
            }
            Ok(None) => return None,
            Ok(Some(bytes)) => decode(&bytes, reservoir, now),
            Err(error) => Err(error.to_string()),
        };
        let problem = decoded.err()?;
        reservoir.set_incomplete_before(now);
        // Otherwise the next opening would not know it.
        reservoir.set_changed();
        Some(format!("exemplars are missing: {}: {problem}", self.path.display()))
    }
}

/// Encodes all exemplars.
pub(crate) fn encode(reservoir: &Reservoir) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&reservoir.complete_from().to_le_bytes());
    let checksum = crc32c::crc32c(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
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
    if !(VERSION_OLDEST..=VERSION).contains(&version) {
        return Err(format!("version {version}, expected {VERSION}"));
    }
    if version == VERSION {
        let complete = i64::from_le_bytes(reader.array("time").map_err(text)?);
        let header = bytes.get(..reader.offset()).unwrap_or_default();
        if reader.u32("checksum").map_err(text)? != crc32c::crc32c(header) {
            return Err("the header is damaged".to_owned());
        }
        reservoir.set_incomplete_before(complete);
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
                exemplars.into_iter().for_each(|(id, one)| reservoir.restore(id, one, now));
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
        assert_eq!(file.read_into(&mut read, (NOW, false)), None, "no file is no damage");
        let saved = filled();
        let bytes = encode(&saved);
        assert!(bytes.len() > BLOCK_BYTES, "{} bytes", bytes.len());
        file.replace(&bytes).unwrap();
        assert_eq!(file.read_into(&mut read, (NOW, false)), None);
        assert_eq!(listed(&read), listed(&saved));
        // Reading it again changes nothing.
        assert_eq!(file.read_into(&mut read, (NOW, false)), None);
        assert_eq!(listed(&read), listed(&saved));
        let check = |bytes: &[u8], part: &str, min: u64| {
            file.replace(bytes).unwrap();
            let mut read = empty();
            let problem = file.read_into(&mut read, (NOW, false)).unwrap();
            assert!(problem.contains(part), "{problem}");
            assert_eq!(read.covered_from(NOW), NOW, "they may be missing");
            assert!(read.stat(NOW).exemplars >= min, "{} exemplars", read.stat(NOW).exemplars);
        };
        check(b"", "magic at byte 0 is truncated", 0);
        check(b"something else", "it is not a file of exemplars", 0);
        let mut flipped = bytes.clone();
        flipped[100] ^= 1;
        check(&flipped, "1 blocks are damaged", 1);
        check(&bytes[..bytes.len() - 1], "block at byte", 1);
        let mut flipped = bytes.clone();
        flipped[12] ^= 1;
        check(&flipped, "the header is damaged", 0);
        // Version 1 has no time.
        let first = [&bytes[..8], &1_u32.to_le_bytes(), &bytes[24..]].concat();
        file.replace(&first).unwrap();
        let mut of_first = empty();
        assert_eq!(file.read_into(&mut of_first, (NOW, false)), None);
        assert_eq!(listed(&of_first), listed(&saved));
        let mut later = bytes;
        later[8] = 3;
        check(&later, "version 3, expected 2", 0);
    }

    /// What was evicted before a restart is still missing after it.
    #[test]
    fn incomplete_time_is_saved() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        let dir = Path::new("/store");
        disk.create_dir(dir).unwrap();
        let file = ExemplarFile::new(Arc::clone(&disk), dir);
        let options = ExemplarOptions { bytes_max: 64 << 10, ..ExemplarOptions::default() };
        let mut saved = Reservoir::new(options, 1);
        for found in filled().matches(&(i64::MIN..i64::MAX), &|_: &_| true) {
            saved.offer(found.series, found.kept.exemplar.clone(), NOW);
        }
        let complete = saved.covered_from(NOW);
        assert!(complete > NOW - crate::resolution::HOUR, "the budget evicts");
        file.replace(&encode(&saved)).unwrap();
        let mut read = Reservoir::new(ExemplarOptions::default(), 1);
        assert_eq!(file.read_into(&mut read, (NOW, false)), None);
        assert_eq!(read.covered_from(NOW), complete);
        // A store restored from a snapshot has no file.
        let empty = || Reservoir::new(ExemplarOptions::default(), 1);
        let absent = ExemplarFile::new(disk, Path::new("/other"));
        for (is_restored, expected) in [(true, NOW), (false, NOW - crate::resolution::HOUR)] {
            let mut read = empty();
            assert_eq!(absent.read_into(&mut read, (NOW, is_restored)), None);
            assert_eq!(read.covered_from(NOW), expected);
        }
    }
}
