//! File names of a journal.
//!
//! ```text
//! DIR/journal                    settings, two copies
//! DIR/buffer                     the pre-commit buffer, mapped
//! DIR/gaps                       dropped or lost records that a reader may still need
//! DIR/segments/POSITION.seg      records; named by the first position, 16 hexadecimal digits
//! DIR/checkpoints/NAME           a subscriber or checkpoint, two copies; bytes outside
//!                                [A-Za-z0-9_-] as %XX
//! DIR/locks/…                    empty lock files of open handles
//! DIR/quarantine/…               damaged bytes, moved by `repair`
//! DIR/ledgers/…                  not part of the journal: ledgers of its users
//! ```

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Maximum length of a checkpoint name in bytes: escaped at three bytes each it must fit the file
/// system's limit of 255.
pub const NAME_BYTES_MAX: usize = 80;

#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) dir: PathBuf,
}

impl Paths {
    pub(crate) fn new(dir: &Path) -> Paths {
        Paths { dir: dir.to_owned() }
    }

    pub(crate) fn settings(&self) -> PathBuf {
        self.dir.join("journal")
    }

    pub(crate) fn buffer(&self) -> PathBuf {
        self.dir.join("buffer")
    }

    pub(crate) fn gaps(&self) -> PathBuf {
        self.dir.join("gaps")
    }

    pub(crate) fn segments(&self) -> PathBuf {
        self.dir.join("segments")
    }

    pub(crate) fn segment(&self, first: u64) -> PathBuf {
        self.segments().join(format!("{first:016x}.seg"))
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.dir.join("checkpoints")
    }

    pub(crate) fn checkpoint(&self, name: &str) -> Result<PathBuf> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::InvalidName {
                name: name.to_owned(),
                found: name.len(),
                max: NAME_BYTES_MAX,
            });
        }
        Ok(self.checkpoints().join(encode(name)))
    }

    pub(crate) fn locks(&self) -> PathBuf {
        self.dir.join("locks")
    }

    pub(crate) fn lock(&self, name: &str) -> PathBuf {
        self.locks().join(name)
    }

    pub(crate) fn quarantine(&self) -> PathBuf {
        self.dir.join("quarantine")
    }
}

/// First position, from a segment's file name.
pub(crate) fn first_position(file_name: &str) -> Option<u64> {
    let digits = file_name.strip_suffix(".seg")?;
    let lower = digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    (digits.len() == 16 && lower).then(|| u64::from_str_radix(digits, 16).ok())?
}

fn encode(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    name.bytes()
        .map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

/// Checkpoint name, from its file name; `None` for other files.
pub(crate) fn decode(file_name: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = file_name.as_bytes();
    while let [byte, after @ ..] = rest {
        let (byte, after) = match (byte, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |b: &u8| char::from(*b).to_digit(16);
                ((digit(high)? * 16 + digit(low)?) as u8, after)
            }
            _ => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok().filter(|name| encode(name) == file_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_round_trips_as_a_file_name() {
        for name in ["store", "site A/b", "..", ".hidden", "ünïcode", "100%", "a.new"] {
            let file = encode(name);
            assert!(
                file.bytes().all(|b| b.is_ascii_alphanumeric() || b"%-_".contains(&b)),
                "{file}"
            );
            assert_eq!(decode(&file).as_deref(), Some(name));
        }
        for none in ["store.new", "%", "%4", "%zz", "%61", "é"] {
            assert_eq!(decode(none), None, "{none}");
        }
    }

    #[test]
    fn segments_sort_by_position() {
        let paths = Paths::new(Path::new("j"));
        let name = paths.segment(255);
        assert_eq!(name, Path::new("j/segments/00000000000000ff.seg"));
        assert_eq!(first_position("00000000000000ff.seg"), Some(255));
        for none in ["ff.seg", "00000000000000FF.seg", "00000000000000ff", "+0000000000000ff.seg"] {
            assert_eq!(first_position(none), None, "{none}");
        }
    }
}
