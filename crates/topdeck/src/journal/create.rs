//! `topdeck journal create`: a new journal, and what it will keep.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use journal::{Compression, Journal, LimitPolicy, Limits, Settings};

use crate::command::print_stdout;
use crate::journal::parse::{self, OptionalLimit};
use crate::journal::{format, with_dir};
use render::bytes::format_bytes;
use render::text::escape_control;

/// Make a journal in a folder
///
/// The settings stay with the journal. Sizes are whole numbers of B, KiB, MiB, GiB or TiB.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Its folder, made if it is missing; on a local disk, not on a network
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// How records are compressed
    #[arg(long, default_value = "lz4", value_parser = parse::codec_parser())]
    codec: Compression,

    /// The buffer that appends go to first, a power of two from 4KiB to 1GiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse::size)]
    buffer: u64,

    /// The size of a segment, from 16KiB to 4GiB
    ///
    /// Space is reserved and freed by whole segments, and a record may take a quarter of one.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse::size)]
    segment: u64,

    /// How much may be kept, at least two segments; none: as much as the disk holds
    #[arg(long, value_name = "SIZE|none", default_value = "1GiB", value_parser = parse::parse_size_limit)]
    max_bytes: OptionalLimit<u64>,

    /// How long records may be kept, such as 7d; none: for ever
    #[arg(long, value_name = "TIME|none", default_value = "none", value_parser = parse::parse_age_limit)]
    max_age: OptionalLimit<Duration>,

    /// Policy at a limit when a subscriber still needs the oldest records
    #[arg(long, value_name = "POLICY", default_value = "refuse", value_parser = parse::limit_policy_parser())]
    on_full: LimitPolicy,

    /// How many producers are remembered at least, to recognise repeats: 1 to 65536
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    producers: u32,
}

const AFTER: &str = "\
Examples:
  topdeck journal create /var/lib/app/journal
  topdeck journal create j --max-bytes 20GiB --max-age 7d --on-full drop-oldest
  topdeck journal create small --segment 64KiB --buffer 64KiB --max-bytes 1MiB

Exit status:
  0  it is there, durably
  1  it could not be made, or there was one already
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
            codec: self.codec,
            buffer_bytes: self.buffer,
            segment_bytes: self.segment,
            producers_max: self.producers,
            limits: Limits {
                bytes_max: self.max_bytes.0,
                age_max: self.max_age.0,
                on_full: self.on_full,
            },
        }
    }
}

/// Makes a journal of now.
pub(crate) fn create(dir: &Path, settings: &Settings) -> Result<()> {
    let now = journal::wall_clock()();
    Journal::create(&disk::OsDisk, dir, journal::random_id(), now, settings).map_err(with_dir(dir))
}

/// What was made, in a paragraph.
pub(crate) fn creation_summary(dir: &Path, settings: &Settings) -> String {
    let dir = escape_control(&dir.display().to_string());
    let compressed = match settings.codec {
        Compression::None => "not compressed".to_owned(),
        codec => format!("compressed with {}", format::codec_name(codec)),
    };
    format!(
        "made a journal in {dir}: {compressed}, segments of {}, a buffer of {}.\n\
         It keeps {}.\n",
        format_bytes(settings.segment_bytes),
        format_bytes(settings.buffer_bytes),
        format::describe_limits(&settings.limits),
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
