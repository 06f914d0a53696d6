//! Registry entries: eight words and the texts they refer to. Encoder and decoder are both here.

use crate::layout::{self, kind};
use crate::metric_snapshot::MetricRole;

/// Definition of a series to register.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SeriesDefinition {
    pub(crate) kind: u64,
    pub(crate) name: String,
    /// Sorted by name, unique.
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) unit: String,
    pub(crate) help: String,
    pub(crate) role: MetricRole,
    /// Cells of the related metric.
    pub(crate) related_cells: Option<u64>,
    /// Parameter of the kind; in-flight operations have the names of their tags here, as a text.
    pub(crate) parameter: u64,
    pub(crate) tags: Vec<String>,
}

/// Limit of labels per series, equal to that of all series in topdeck.
pub(crate) const LABELS_MAX: usize = 64;
/// Longest text in bytes: the names of four tags with their separators, in five strings' room.
const TEXT_MAX: usize = 5 * layout::STRING_MAX;

/// Offsets of a series' cells in each lane: small cells, plus 2^32 times large cells.
pub(crate) fn cells(small: usize, large: usize) -> u64 {
    small as u64 | (large as u64) << 32
}

/// Size and alignment of small cells, and size of large cells, by kind.
pub(crate) const fn sizes(kind: u64) -> Option<(usize, usize, usize)> {
    Some(match kind {
        kind::COUNTER | kind::UP_DOWN | kind::GAUGE | kind::FLOAT_GAUGE => (8, 8, 0),
        kind::TEXT => (layout::TEXT_BYTES, 8, 0),
        kind::HEARTBEAT => (layout::HEARTBEAT_BYTES, 8, 0),
        kind::HISTOGRAM => (64, 64, layout::BUCKETS_BYTES),
        kind::IN_FLIGHT => (64, 64, layout::SLOTS_MAX * layout::SLOT_BYTES),
        _ => return None,
    })
}

/// Decoded registry entry. Its words are untrusted: an invalid text is `None`.
#[derive(Clone, Copy)]
pub(crate) struct RegistryEntry<'a> {
    pub(crate) words: &'a [u64; 8],
    pub(crate) texts: &'a [u8],
}

impl<'a> RegistryEntry<'a> {
    pub(crate) fn kind(self) -> u64 {
        self.words[0] & 0xff
    }

    /// An unknown role is read as none.
    pub(crate) fn role(self) -> MetricRole {
        MetricRole::ALL.get((self.words[0] >> 8 & 0xff) as usize).copied().unwrap_or_default()
    }

    pub(crate) fn name(self) -> Option<&'a str> {
        self.string(1)
    }

    pub(crate) fn labels(self) -> Option<Vec<(&'a str, &'a str)>> {
        decode_labels(text_at(self.texts, self.words[2])?)
    }

    pub(crate) fn unit(self) -> Option<&'a str> {
        self.string(3)
    }

    pub(crate) fn help(self) -> Option<&'a str> {
        self.string(4)
    }

    /// Offsets of small and large cells.
    pub(crate) fn cells(self) -> (usize, usize) {
        (self.words[5] as u32 as usize, (self.words[5] >> 32) as usize)
    }

    /// Number of the related entry.
    pub(crate) fn related_entry(self) -> Option<u64> {
        self.words[6].checked_sub(1)
    }

    pub(crate) fn parameter(self) -> u64 {
        self.words[7]
    }

    /// Names of the tags of operations.
    pub(crate) fn tags(self) -> Option<Vec<&'a str>> {
        if self.kind() != kind::IN_FLIGHT {
            return Some(Vec::new());
        }
        let names = self.string(7)?.split('\0').filter(|name| !name.is_empty());
        Some(names.take(layout::TAGS_MAX).collect())
    }

    /// Memory of names, labels and help text when decoded; `None` unless all of them are valid.
    pub(crate) fn text_bytes(self) -> Option<usize> {
        const STRING_BYTES: usize = size_of::<String>();
        let texts = self.name()?.len() + self.unit()?.len() + self.help()?.len() + 3 * STRING_BYTES;
        let labels = self.labels()?.into_iter();
        let labels =
            labels.map(|(name, value)| name.len() + value.len() + 2 * STRING_BYTES).sum::<usize>();
        let tags = self.tags()?.into_iter().map(|tag| tag.len() + STRING_BYTES).sum::<usize>();
        Some(texts + labels + tags)
    }

    fn string(self, word: usize) -> Option<&'a str> {
        match self.words[word] {
            0 => Some(""),
            at => str::from_utf8(text_at(self.texts, at)?).ok(),
        }
    }
}

/// Text at a reference in an entry or the header.
pub(crate) fn text_at(texts: &[u8], at: u64) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?.checked_mul(8)?;
    if at == 0 {
        return Some(&[]);
    }
    let (length, rest) = texts.get(at..)?.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    rest.get(..length).filter(|_| length <= TEXT_MAX)
}

/// Bytes as words, least significant byte first, padded with zeros.
pub(crate) fn to_words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

/// Encodes labels as one text: for each label the length of the name in two bytes, the name, and
/// the same for the value.
pub(crate) fn encode_labels(labels: &[(String, String)]) -> Vec<u8> {
    let mut text = Vec::new();
    for part in labels.iter().flat_map(|(name, value)| [name, value]) {
        text.extend_from_slice(&(part.len() as u16).to_le_bytes());
        text.extend_from_slice(part.as_bytes());
    }
    text
}

fn decode_labels(mut text: &[u8]) -> Option<Vec<(&str, &str)>> {
    let mut labels = Vec::new();
    while !text.is_empty() {
        let mut part = || {
            let (length, rest) = text.split_first_chunk()?;
            let (part, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
            text = rest;
            str::from_utf8(part).ok()
        };
        if labels.len() == LABELS_MAX {
            return None;
        }
        labels.push((part()?, part()?));
    }
    Some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_out_of_bounds_is_rejected() {
        let mut texts: Vec<u8> = [0u64, 3].iter().flat_map(|word| word.to_le_bytes()).collect();
        texts.extend(b"abc");
        assert_eq!(text_at(&texts, 0), Some(&b""[..]));
        assert_eq!(text_at(&texts, 1), Some(&b"abc"[..]));
        assert_eq!(text_at(&texts[..18], 1), None, "it is cut off");
        for at in [2, 3, 1 << 32, u64::MAX] {
            assert_eq!(text_at(&texts, at), None);
        }
    }

    #[test]
    fn labels_are_read_as_they_were_written() {
        let labels = [("a", ""), ("größe", "5")];
        let owned = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let text = encode_labels(&owned);
        assert_eq!(decode_labels(&text), Some(labels.to_vec()));
        for end in 1..text.len() {
            // A text cut between two labels has one label less.
            assert!(decode_labels(&text[..end]).is_none_or(|labels| labels.len() == 1), "{end}");
        }
        assert_eq!(decode_labels(&[0; 4 * (LABELS_MAX + 1)]), None);
    }
}
