//! `topdeck wire --both-ends`: the same requests in captures of the client's and the server's host.
//!
//! Each file is read twice: for the boundaries of its segments, and for its requests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use client::{print_message, print_stdout};
use inspect::capture::{self, CaptureEnd, CaptureSummary};
use render::terminal::Terminal;
use wire::{ConnectionTracker, EndComparison, SegmentBoundaries, StreamCuts, TrackerSettings};

use super::{Options, read_file, read_packets};

/// Boundaries of segments of both files: those of 30 million segments.
const BOUNDARIES_MAX: usize = 32 << 20;

pub(crate) fn run(
    paths: &[PathBuf],
    settings: &TrackerSettings,
    options: &Options,
) -> Result<ExitCode> {
    let [client, server] = paths else { bail!("BUG: {} files, expected 2", paths.len()) };
    let mut boundaries = SegmentBoundaries::new(&settings.rules, BOUNDARIES_MAX);
    let (mut files, mut failures) = (Vec::new(), Vec::new());
    for path in [client, server] {
        match read_boundaries(path, &mut boundaries) {
            Ok((file, damage)) => {
                files.push(file);
                failures.extend(damage);
            }
            Err(error) => failures.push(error),
        }
    }
    let Ok([client_file, server_file]) = <[FileContent; 2]>::try_from(files) else {
        return Err(print_all_but_last(failures));
    };
    let cuts = boundaries.into_cuts();
    let mut ends = [
        read_requests(client, client_file, settings, &cuts)?,
        read_requests(server, server_file, settings, &cuts)?,
    ];
    let [one, other] = &mut ends;
    let comparison = EndComparison::new(&mut one.tracker, &mut other.tracker);
    if options.json {
        let json = capture::ends_json(&comparison, &ends);
        print_stdout(format!("{json}\n").as_bytes())?;
    } else {
        let terminal = Terminal::new(options.ascii);
        print_stdout(capture::ends_text(&comparison, &ends, &terminal).as_bytes())?;
    }
    if failures.is_empty() {
        let without_service = ends.iter().filter(|end| end.tracker.services().is_empty());
        failures.extend(without_service.map(|CaptureEnd { tracker, summary }| {
            anyhow::Error::msg(capture::no_service_message(tracker, summary))
        }));
    }
    match failures.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(print_all_but_last(failures)),
    }
}

/// Each file has its own failure, and a command returns one.
fn print_all_but_last(mut failures: Vec<anyhow::Error>) -> anyhow::Error {
    let last = failures.pop().expect("BUG: no failure");
    failures.iter().for_each(|failure| print_message(format_args!("{failure:#}")));
    last
}

/// What the first reading of a file finds.
struct FileContent {
    summary: CaptureSummary,
    packets: u64,
}

/// Returns damage that ends the file beside what is before it.
fn read_boundaries(
    path: &Path,
    boundaries: &mut SegmentBoundaries,
) -> Result<(FileContent, Option<anyhow::Error>)> {
    let is_other = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    if is_other || path == Path::new("-") {
        bail!("cannot read {} twice: it is not a regular file; write it to one", path.display());
    }
    let mut packets = 0;
    let (summary, failure) = read_file(path, &mut |packet| {
        packets += 1;
        boundaries.read(packet);
    })?;
    if boundaries.is_full() {
        bail!(
            "{}: limit of {BOUNDARIES_MAX} boundaries of segments exceeded; compare shorter \
             captures",
            path.display()
        );
    }
    Ok((FileContent { summary, packets }, failure))
}

/// Reads the packets whose boundaries are known: a file may have grown since.
fn read_requests(
    path: &Path,
    FileContent { summary, packets }: FileContent,
    settings: &TrackerSettings,
    cuts: &StreamCuts,
) -> Result<CaptureEnd> {
    let mut tracker = ConnectionTracker::new(settings.clone());
    tracker.record_requests(cuts.clone());
    read_packets(path, packets, &mut |packet| tracker.read(packet))?;
    Ok(CaptureEnd { tracker, summary })
}
