//! Record of an import on the client: what a file was when it was imported.
//!
//! The identity of an import is the content. A file that changed has another one, and what both
//! contents have in common would be counted twice. So the client remembers the last import of a
//! file into a target, in a file of its own:
//!
//! ```text
//! topdeck import 1
//! complete | incomplete
//! SIZE MODIFIED_NS CONTENT_HASH PRODUCER START_NS|-
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use client::print_message;
use render::bytes::format_bytes;
use render::time::precise_time_text;

use crate::input_source::FileFingerprint;
use crate::scan::ScanSummary;

const MAGIC: &str = "topdeck import 1";
/// Maximum number of records; the oldest are deleted.
const RECORDS_MAX: usize = 4096;

/// Record of the last import of a file into a target.
pub(crate) struct ImportRecord {
    path: PathBuf,
    start: Option<ImportStart>,
    earlier: Option<ImportState>,
}

/// Start given on the command line.
#[derive(Clone, Copy, Debug)]
pub struct ImportStart {
    /// In nanoseconds since the Unix epoch.
    pub ns: i64,
    /// Whether it is relative to now: each import has another one.
    pub is_relative: bool,
}

/// An import as recorded.
#[derive(Clone, Debug, PartialEq)]
struct ImportState {
    is_complete: bool,
    version: FileFingerprint,
    /// BLAKE3 of the content.
    content: blake3::Hash,
    producer: u64,
    start: Option<i64>,
}

/// Directory of the records: from `XDG_STATE_HOME` or `HOME`.
pub(crate) fn record_dir() -> Option<PathBuf> {
    let of =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = of("XDG_STATE_HOME").or_else(|| of("HOME").map(|home| home.join(".local/state")));
    Some(home?.join("topdeck/imports"))
}

impl ImportRecord {
    /// The record of a file; `options` are those that distinguish imports of the same content,
    /// except the start.
    pub(crate) fn open(
        dir: &Path,
        (target, file, options): (&str, &Path, &str),
        start: Option<ImportStart>,
    ) -> ImportRecord {
        let mut hasher = blake3::Hasher::new();
        for part in [target.as_bytes(), file.as_os_str().as_encoded_bytes(), options.as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        let path = dir.join(&hasher.finalize().to_hex()[..32]);
        let earlier = fs::read_to_string(&path).ok().and_then(|text| ImportState::parse(&text));
        ImportRecord { path, start, earlier }
    }

    /// Size of the file at the earlier import: a prefix that the scan hashes too.
    pub(crate) fn earlier_size(&self) -> Option<u64> {
        self.earlier.as_ref().map(|earlier| earlier.version.size)
    }

    /// Whether the content may be imported without counting any of it again; the error says what to
    /// do. `version` is that of the file now.
    pub(crate) fn check(
        &self,
        name: &str,
        version: FileFingerprint,
        scan: &ScanSummary,
    ) -> Result<()> {
        let Some(earlier) = &self.earlier else { return Ok(()) };
        if earlier.producer == scan.number {
            return Ok(());
        }
        let (is_same, is_grown) =
            (earlier.content == scan.content, scan.prefix == Some(earlier.content));
        let (was, is) = (describe(earlier.version), describe(version));
        let (start, is_relative) = (self.start_ns(), self.start.is_some_and(|it| it.is_relative));
        let (size, next) = (earlier.version.size, earlier.version.size + 1);
        match (earlier.is_complete, is_same, is_grown) {
            (true, true, _) if is_relative && earlier.start.is_some() => bail!(
                "cannot import {name}: the same content was imported with {0}, and a --start \
                 relative to now would count it twice; import it with {0}, which adds nothing, or \
                 with --as-new, which counts it again",
                start_text(earlier.start)
            ),
            (false, true, _) if earlier.start != start => {
                bail!(
                    "cannot continue the import of {name}: it was interrupted, and had another \
                     --start; import it with {}, or with --as-new, which counts what was \
                     stored twice",
                    start_text(earlier.start)
                )
            }
            (false, false, true) => bail!(
                "cannot continue the import of {name}: the file has grown since it was interrupted \
                 ({was}; now {is}); complete it with the bytes of then (head -c {size} {name} | \
                 topdeck import … -), then import the new part (tail -c +{next}), or import all of \
                 it with --as-new, which counts what was stored twice"
            ),
            (false, false, false) => bail!(
                "cannot continue the import of {name}: the file was changed since it was \
                 interrupted ({was}; now {is}); restore it and import it again, or import it as it \
                 is with --as-new, which counts what both have in common twice"
            ),
            (true, false, true) if earlier.start == start || is_relative => bail!(
                "cannot import {name}: the file has grown since its import ({was}; now {is}), and \
                 its first {} would be counted twice; import the new part (tail -c +{next} {name} \
                 | topdeck import … -), or all of it with --as-new",
                format_bytes(size)
            ),
            _ => Ok(()),
        }
    }

    fn start_ns(&self) -> Option<i64> {
        self.start.map(|start| start.ns)
    }

    /// Records the start or the end of an import. Without the record a change of the file goes
    /// unnoticed, so a failure is a warning.
    pub(crate) fn write(&self, version: FileFingerprint, scan: &ScanSummary, is_complete: bool) {
        let (content, producer) = (scan.content, scan.number);
        let version = FileFingerprint { size: scan.bytes, ..version };
        let state = ImportState { is_complete, version, content, producer, start: self.start_ns() };
        let dir = self.path.parent().expect("BUG: the path was joined");
        // A torn record is not parsed, and counts as none.
        let written = fs::create_dir_all(dir).and_then(|()| fs::write(&self.path, state.to_text()));
        if let Err(error) = written
            && !is_complete
        {
            print_message(format_args!(
                "cannot record the import in {}: {error}; if the file changes before the import is \
                 complete, that is not noticed",
                dir.display()
            ));
        }
        delete_oldest(dir, RECORDS_MAX);
    }
}

/// The option with a start, without rounding: another start is another import.
fn start_text(start: Option<i64>) -> String {
    start.map_or_else(|| "no --start".to_owned(), |ns| format!("--start {ns}ns"))
}

fn describe(version: FileFingerprint) -> String {
    format!("{} bytes, changed {}", version.size, precise_time_text(version.modified_ns))
}

/// Deletes the oldest records beyond a number; errors are ignored.
fn delete_oldest(dir: &Path, max: usize) {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<_> = files
        .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())))
        .collect();
    if files.len() > max {
        model::sort::by(&mut files, Ord::cmp);
        for (_, path) in &files[..files.len() - max] {
            let _ = fs::remove_file(path);
        }
    }
}

impl ImportState {
    fn to_text(&self) -> String {
        let FileFingerprint { size, modified_ns } = self.version;
        format!(
            "{MAGIC}\n{}\n{size} {modified_ns} {} {:016x} {}\n",
            if self.is_complete { "complete" } else { "incomplete" },
            self.content.to_hex(),
            self.producer,
            self.start.map_or("-".to_owned(), |start| start.to_string())
        )
    }

    fn parse(text: &str) -> Option<ImportState> {
        let mut lines = text.strip_suffix('\n')?.lines();
        if lines.next()? != MAGIC {
            return None;
        }
        let is_complete = match lines.next()? {
            "complete" => true,
            "incomplete" => false,
            _ => return None,
        };
        let mut fields = lines.next()?.split(' ');
        let mut field = || fields.next();
        let version =
            FileFingerprint { size: field()?.parse().ok()?, modified_ns: field()?.parse().ok()? };
        let content = blake3::Hash::from_hex(field()?).ok()?;
        let producer = u64::from_str_radix(field()?, 16).ok()?;
        let start = match field()? {
            "-" => None,
            start => Some(start.parse().ok()?),
        };
        Some(ImportState { is_complete, version, content, producer, start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(is_complete: bool) -> ImportState {
        ImportState {
            is_complete,
            version: FileFingerprint { size: 3, modified_ns: 1_700_000_000_000_000_000 },
            content: blake3::hash(b"abc"),
            producer: 7,
            start: Some(-5),
        }
    }

    #[test]
    fn a_record_is_read_back_unless_it_is_torn() {
        for state in [state(true), ImportState { start: None, ..state(false) }] {
            let text = state.to_text();
            assert_eq!(ImportState::parse(&text), Some(state));
            for end in 0..text.len() {
                assert_eq!(ImportState::parse(&text[..end]), None, "{end}");
            }
        }
    }

    /// An earlier import of `abc` with start -5; `found` is what the file has now.
    #[track_caller]
    fn check(is_complete: bool, (found, start): (&str, i64), expected: Result<(), &str>) {
        let start = ImportStart { ns: start, is_relative: false };
        check_start(is_complete, (found, start), expected);
    }

    #[track_caller]
    fn check_start(
        is_complete: bool,
        (found, start): (&str, ImportStart),
        expected: Result<(), &str>,
    ) {
        let earlier = Some(state(is_complete));
        let record = ImportRecord { path: PathBuf::new(), start: Some(start), earlier };
        let start = start.ns;
        let content = blake3::hash(found.as_bytes());
        let number = if (found, start) == ("abc", -5) { 7 } else { 8 };
        let prefix = found.get(..3).map(|prefix| blake3::hash(prefix.as_bytes()));
        let mut scan = ScanSummary::default();
        (scan.content, scan.number, scan.prefix) = (content, number, prefix);
        let version =
            FileFingerprint { size: found.len() as u64, modified_ns: 1_700_000_001_000_000_000 };
        let found = record.check("a.log", version, &scan).map_err(|error| error.to_string());
        match (found, expected) {
            (Ok(()), Ok(())) => {}
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
            (found, expected) => panic!("{found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn a_file_that_changed_is_imported_only_if_nothing_is_counted_twice() {
        for is_complete in [true, false] {
            check(is_complete, ("abc", -5), Ok(()));
        }
        // Rewritten by its next use, or imported at another time on purpose.
        check(true, ("xyz", -5), Ok(()));
        check(true, ("abc", 0), Ok(()));
        check(true, ("abcd", 0), Ok(()));
        check(
            true,
            ("abcd", -5),
            Err("its first 3 B would be counted twice; import the new part \
             (tail -c +4 a.log | topdeck import … -), or all of it with --as-new"),
        );
        check(false, ("abcd", -5), Err("(head -c 3 a.log | topdeck import … -), then"));
        check(
            false,
            ("xyz", -5),
            Err("was changed since it was interrupted (3 bytes, changed \
             2023-11-14 22:13:20Z; now 3 bytes, changed 2023-11-14 22:13:21Z); restore it"),
        );
        check(false, ("abc", 0), Err("import it with --start -5ns"));
    }

    #[test]
    fn the_same_file_at_another_now_is_refused() {
        let now = ImportStart { ns: 9, is_relative: true };
        check_start(
            true,
            ("abc", now),
            Err("was imported with --start -5ns, and a --start relative"),
        );
        check_start(true, ("abcd", now), Err("the file has grown since its import"));
        check_start(true, ("xyz", now), Ok(()));
    }

    #[test]
    fn the_oldest_records_are_deleted() {
        let dir = std::env::temp_dir().join(format!("topdeck-records-{:x}", journal::random_id()));
        fs::create_dir(&dir).unwrap();
        for n in 0..5u64 {
            let file = fs::File::create(dir.join(n.to_string())).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(100 - n);
            file.set_modified(time).unwrap();
        }
        delete_oldest(&dir, 2);
        let mut left: Vec<_> =
            fs::read_dir(&dir).unwrap().map(|file| file.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["0", "1"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
