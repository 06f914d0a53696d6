//! Cutting a stream into records, in memory for one read and one record, whatever the stream holds.

use std::io::{self, Read};

/// Asked for at once: a read gives less when a pipe has less, and that is then appended without waiting.
const READ_BYTES: usize = 1 << 20;

/// What ends a record in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// This byte, which is no part of it. The last record may do without.
    Byte(u8),
    /// The end of the stream: it is one record, which may be empty.
    Stream,
}

/// A stream that is being cut.
pub(crate) struct Input<R> {
    source: R,
    end: End,
    /// A record may have so many bytes.
    record_bytes_max: u64,
    /// Bytes that were read and are not used up: those of `bytes` before `have`.
    bytes: Vec<u8>,
    have: usize,
    /// How far `bytes` was searched for an end without finding one.
    searched: usize,
    ended: bool,
}

/// What a read gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read1 {
    /// Perhaps records, to be had from [`Input::take`].
    More,
    /// The stream has ended, and so have its records when they have been taken.
    Ended,
    /// The record after those taken has more bytes than a record may have.
    TooLarge,
}

impl<R: Read> Input<R> {
    pub(crate) fn new(source: R, end: End, record_bytes_max: u64) -> Input<R> {
        Input {
            source,
            end,
            record_bytes_max,
            bytes: Vec::new(),
            have: 0,
            searched: 0,
            ended: false,
        }
    }

    /// Reads once: what is there now, waiting only if there is nothing. All records must have been taken.
    pub(crate) fn read(&mut self) -> io::Result<Read1> {
        if self.ended {
            return Ok(Read1::Ended);
        }
        if self.have as u64 > self.record_bytes_max {
            return Ok(Read1::TooLarge);
        }
        if self.bytes.len() < self.have + READ_BYTES {
            self.bytes.resize(self.have + READ_BYTES, 0);
        }
        let n = loop {
            match self.source.read(&mut self.bytes[self.have..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.have += n;
        self.ended = n == 0;
        Ok(Read1::More)
    }

    /// All whole records that were read, to be taken by one call after each read.
    pub(crate) fn take<'a>(&'a mut self, records: &mut Vec<std::ops::Range<usize>>) -> &'a [u8] {
        records.clear();
        let mut from = 0;
        if let End::Byte(end) = self.end {
            let mut at = self.searched;
            while let Some(n) = self.bytes[at..self.have].iter().position(|&byte| byte == end) {
                records.push(from..at + n);
                at += n + 1;
                from = at;
            }
        }
        let last = match self.end {
            End::Byte(_) => self.have > from,
            End::Stream => true,
        };
        if self.ended && last {
            records.push(from..self.have);
        }
        &self.bytes
    }

    /// Forgets the records that were taken last.
    pub(crate) fn used(&mut self, records: &[std::ops::Range<usize>]) {
        let used = match (records.last(), self.end) {
            (None, _) => 0,
            (Some(last), End::Byte(_)) => (last.end + 1).min(self.have),
            (Some(last), End::Stream) => last.end,
        };
        self.bytes.copy_within(used..self.have, 0);
        self.have -= used;
        self.searched = self.have;
        // A large record's memory is not kept for small ones.
        if self.have == 0 && self.bytes.len() > 4 * READ_BYTES {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time, as a slow pipe does.
    struct Drops<'a>(&'a [u8], usize);

    impl Read for Drops<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(bytes.len());
            bytes[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn cut(bytes: &[u8], end: End, at_once: usize, most: u64) -> (Vec<Vec<u8>>, Read1) {
        let mut input = Input::new(Drops(bytes, at_once), end, most);
        let (mut all, mut records) = (Vec::new(), Vec::new());
        loop {
            match input.read().unwrap() {
                Read1::More => {}
                over => return (all, over),
            }
            let bytes = input.take(&mut records);
            all.extend(records.iter().map(|record| bytes[record.clone()].to_vec()));
            input.used(&records);
        }
    }

    #[track_caller]
    fn check(bytes: &str, end: End, expected: &[&str]) {
        for at_once in [1, 2, 3, 1000] {
            let (all, over) = cut(bytes.as_bytes(), end, at_once, 1000);
            let expected: Vec<Vec<u8>> = expected.iter().map(|r| r.as_bytes().to_vec()).collect();
            assert_eq!((all, over), (expected, Read1::Ended), "{at_once} bytes at once");
        }
    }

    const LINES: End = End::Byte(b'\n');

    #[test]
    fn lines_are_records() {
        check("", LINES, &[]);
        check("one\n", LINES, &["one"]);
        check("one\ntwo", LINES, &["one", "two"]);
        check("\n\nthree\n\n", LINES, &["", "", "three", ""]);
        check("a\0b\nc\0", End::Byte(0), &["a", "b\nc"]);
    }

    #[test]
    fn a_stream_is_a_record() {
        check("one\ntwo\n", End::Stream, &["one\ntwo\n"]);
        check("", End::Stream, &[""]);
    }

    #[test]
    fn what_is_too_large_is_not_read_to_its_end() {
        let bytes = b"fine\n0123456789\n";
        assert_eq!(cut(bytes, LINES, 1, 9), (vec![b"fine".to_vec()], Read1::TooLarge));
        assert_eq!(cut(bytes, LINES, 1, 10).1, Read1::Ended);
        assert_eq!(cut(bytes, End::Stream, 3, 8).1, Read1::TooLarge);
    }
}
