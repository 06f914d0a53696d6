//! `topdeck journal create`: creates a journal.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use client::print_stdout;
use journal::{Compression, Journal, LimitPolicy, Limits, Settings};
use report::journal_format;

use crate::journal::parse::{self, OptionalLimit};
use crate::journal::with_dir;
use render::bytes::format_bytes;
use render::text::escape_control;

/// Create a journal
///
/// The settings are stored in the journal. Sizes are integers with B, KiB, MiB, GiB or TiB.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the journal, created if it is missing; on a local file system
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Compression of records
    #[arg(long, default_value = "lz4", value_parser = parse::compression_parser())]
    compression: Compression,

    /// Size of the shared memory buffer, a power of two from 4KiB to 1GiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse::size)]
    buffer: u64,

    /// Segment size, from 16KiB to 4GiB
    ///
    /// Space is reserved and freed in whole segments. A record may have up to a quarter of a
    /// segment.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse::size)]
    segment: u64,

    /// Size retention, at least two segments; none: limited by the disk
    #[arg(long, value_name = "SIZE|none", default_value = "1GiB", value_parser = parse::parse_size_limit)]
    max_size: OptionalLimit<u64>,

    /// Time retention, such as 7d; none: unlimited
    #[arg(long, value_name = "TIME|none", default_value = "none", value_parser = parse::parse_age_limit)]
    max_age: OptionalLimit<Duration>,

    /// Policy when a limit is reached and a subscriber still needs the oldest records
    #[arg(long, value_name = "POLICY", default_value = "reject", value_parser = parse::limit_policy_parser())]
    on_full: LimitPolicy,

    /// Approximate capacity of the deduplication table, in producers: 1 to 65536
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    dedup_producers: u32,
}

const AFTER: &str = "\
Examples:
  topdeck journal create /var/lib/app/journal
  topdeck journal create j --max-size 20GiB --max-age 7d --on-full drop-oldest
  topdeck journal create small --segment 64KiB --buffer 64KiB --max-size 1MiB

Exit status:
  0  the journal was created, durably
  1  the journal could not be created, or it already exists
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let settings = options.settings();
    create(&options.dir, &settings)?;
    print_stdout(creation_summary(&options.dir, &settings).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn settings(&self) -> Settings {
        Settings {
            compression: self.compression,
            buffer_bytes: self.buffer,
            segment_bytes: self.segment,
            dedup_producers: self.dedup_producers,
            limits: Limits {
                bytes_max: self.max_size.0,
                age_max: self.max_age.0,
                on_full: self.on_full,
            },
        }
    }
}

/// Creates a journal with the current time.
pub(crate) fn create(dir: &Path, settings: &Settings) -> Result<()> {
    let now = journal::wall_clock()();
    Journal::create(&disk::OsDisk, dir, journal::random_id(), now, settings).map_err(with_dir(dir))
}

/// Summary of the new journal.
pub(crate) fn creation_summary(dir: &Path, settings: &Settings) -> String {
    let dir = escape_control(&dir.display().to_string());
    let compressed = match settings.compression {
        Compression::None => "not compressed".to_owned(),
        compression => format!("compressed with {}", journal_format::compression_name(compression)),
    };
    format!(
        "created a journal in {dir}: {compressed}, segments of {}, a buffer of {}.\nRetention: \
         {}.\n",
        format_bytes(settings.segment_bytes),
        format_bytes(settings.buffer_bytes),
        journal_format::describe_limits(&settings.limits),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestCommandLine {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn defaults_match_the_library() {
        let line = TestCommandLine::parse_from(["create", "j"]);
        assert_eq!(line.options.settings(), Settings::default());
    }
}
