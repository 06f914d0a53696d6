//! Record splitter with bounded memory.

use std::io::{self, Read};

/// Size of a read. A pipe may return less, which is then appended without waiting.
const READ_BYTES: usize = 1 << 20;

/// Record delimiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordDelimiter {
    /// Delimiter byte, not part of the record. The last record may lack it.
    Byte(u8),
    /// End of the stream: the stream is one record, which may be empty.
    Stream,
}

/// Stream with its buffer.
pub(crate) struct RecordSplitter<R> {
    source: R,
    end: RecordDelimiter,
    /// Maximum size of a record in bytes.
    record_bytes_max: u64,
    /// Unconsumed bytes: the first `have` of `bytes`.
    bytes: Vec<u8>,
    length: usize,
    /// Length of the prefix of `bytes` that has no delimiter.
    searched: usize,
    is_ended: bool,
}

/// Status of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadStatus {
    /// More data; [`RecordSplitter::complete_records`] may return records.
    More,
    /// The stream has ended; so have its records once they are discarded.
    End,
    /// The next record is larger than the maximum.
    TooLarge,
}

impl<R: Read> RecordSplitter<R> {
    pub(crate) fn new(source: R, end: RecordDelimiter, record_bytes_max: u64) -> RecordSplitter<R> {
        RecordSplitter {
            source,
            end,
            record_bytes_max,
            bytes: Vec::new(),
            length: 0,
            searched: 0,
            is_ended: false,
        }
    }

    /// Reads once; blocks only if no data is available. All complete records must have been
    /// discarded.
    pub(crate) fn read(&mut self) -> io::Result<ReadStatus> {
        if self.is_ended {
            return Ok(ReadStatus::End);
        }
        if self.length as u64 > self.record_bytes_max {
            return Ok(ReadStatus::TooLarge);
        }
        if self.bytes.len() < self.length + READ_BYTES {
            self.bytes.resize(self.length + READ_BYTES, 0);
        }
        let n = loop {
            match self.source.read(&mut self.bytes[self.length..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.length += n;
        self.is_ended = n == 0;
        Ok(ReadStatus::More)
    }

    /// All complete records; call it once after each read.
    pub(crate) fn complete_records<'a>(
        &'a mut self,
        records: &mut Vec<std::ops::Range<usize>>,
    ) -> &'a [u8] {
        records.clear();
        let mut from = 0;
        if let RecordDelimiter::Byte(end) = self.end {
            let mut at = self.searched;
            while let Some(n) = self.bytes[at..self.length].iter().position(|&byte| byte == end) {
                records.push(from..at + n);
                at += n + 1;
                from = at;
            }
        }
        let last = match self.end {
            RecordDelimiter::Byte(_) => self.length > from,
            RecordDelimiter::Stream => true,
        };
        if self.is_ended && last {
            records.push(from..self.length);
        }
        &self.bytes
    }

    /// Discards the records returned last.
    pub(crate) fn discard(&mut self, records: &[std::ops::Range<usize>]) {
        let used = match (records.last(), self.end) {
            (None, _) => 0,
            (Some(last), RecordDelimiter::Byte(_)) => (last.end + 1).min(self.length),
            (Some(last), RecordDelimiter::Stream) => last.end,
        };
        self.bytes.copy_within(used..self.length, 0);
        self.length -= used;
        self.searched = self.length;
        // The memory of a large record is not kept for small ones.
        if self.length == 0 && self.bytes.len() > 4 * READ_BYTES {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a few bytes per read, like a slow pipe.
    struct SlowReader<'a>(&'a [u8], usize);

    impl Read for SlowReader<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(bytes.len());
            bytes[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn split_all(
        bytes: &[u8],
        end: RecordDelimiter,
        at_once: usize,
        most: u64,
    ) -> (Vec<Vec<u8>>, ReadStatus) {
        let mut input = RecordSplitter::new(SlowReader(bytes, at_once), end, most);
        let (mut all, mut records) = (Vec::new(), Vec::new());
        loop {
            match input.read().unwrap() {
                ReadStatus::More => {}
                over => return (all, over),
            }
            let bytes = input.complete_records(&mut records);
            all.extend(records.iter().map(|record| bytes[record.clone()].to_vec()));
            input.discard(&records);
        }
    }

    #[track_caller]
    fn check(bytes: &str, end: RecordDelimiter, expected: &[&str]) {
        for at_once in [1, 2, 3, 1000] {
            let (all, over) = split_all(bytes.as_bytes(), end, at_once, 1000);
            let expected: Vec<Vec<u8>> = expected.iter().map(|r| r.as_bytes().to_vec()).collect();
            assert_eq!((all, over), (expected, ReadStatus::End), "{at_once} bytes at once");
        }
    }

    const LINES: RecordDelimiter = RecordDelimiter::Byte(b'\n');

    #[test]
    fn lines_are_records() {
        check("", LINES, &[]);
        check("one\n", LINES, &["one"]);
        check("one\ntwo", LINES, &["one", "two"]);
        check("\n\nthree\n\n", LINES, &["", "", "three", ""]);
        check("a\0b\nc\0", RecordDelimiter::Byte(0), &["a", "b\nc"]);
    }

    #[test]
    fn a_stream_is_a_record() {
        check("one\ntwo\n", RecordDelimiter::Stream, &["one\ntwo\n"]);
        check("", RecordDelimiter::Stream, &[""]);
    }

    #[test]
    fn oversized_record_is_not_read_to_its_end() {
        let bytes = b"fine\n0123456789\n";
        assert_eq!(split_all(bytes, LINES, 1, 9), (vec![b"fine".to_vec()], ReadStatus::TooLarge));
        assert_eq!(split_all(bytes, LINES, 1, 10).1, ReadStatus::End);
        assert_eq!(split_all(bytes, RecordDelimiter::Stream, 3, 8).1, ReadStatus::TooLarge);
    }
}
