//! File names of a journal.
//!
//! ```text
//! DIR/journal                    settings, twice
//! DIR/buffer                     the pre-commit buffer, mapped
//! DIR/gaps                       what was dropped or lost and may still be asked for
//! DIR/segments/POSITION.seg      records; the name is the first one's position, 16 hexadecimal digits
//! DIR/checkpoints/NAME           a subscriber or checkpoint, twice; bytes outside [A-Za-z0-9_-] as %XX
//! DIR/locks/…                    empty: their locks say who is there
//! DIR/quarantine/…               what `repair` cut out
//! DIR/books/…                    not the journal's own: what its users have counted of it
//! ```

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The longest name of a checkpoint: three bytes for each and the file system's 255 must suffice.
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

/// The first position in a segment's file name.
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

/// The name behind a checkpoint's file name; `None` for a file that is none.
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
        let places = Paths::new(Path::new("j"));
        let name = places.segment(255);
        assert_eq!(name, Path::new("j/segments/00000000000000ff.seg"));
        assert_eq!(first_position("00000000000000ff.seg"), Some(255));
        for none in ["ff.seg", "00000000000000FF.seg", "00000000000000ff", "+0000000000000ff.seg"] {
            assert_eq!(first_position(none), None, "{none}");
        }
    }
}
