//! `topdeck store verify` and `scrub`: whether everything is still what was written.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use store::{Damage, Report};

use crate::command::{plain, print};
use crate::journal::progress::Progress;
use crate::journal::{parse, show};
use crate::store::{open, plural, rows, told};
use crate::time;
use api::json::Json::{self, Bool, List, Null, Object, Text};
use api::json::integer;

/// Read everything, and say what is damaged; changes nothing
#[derive(clap::Args)]
#[command(after_long_help = VERIFY_AFTER)]
pub(crate) struct VerifyOptions {
    #[command(flatten)]
    looking: Looking,
}

const VERIFY_AFTER: &str = "\
Examples:
  topdeck store verify s
  topdeck store verify s --rate 20MiB --json

Exit status:
  0  all is as it was written
  1  something is damaged, or there is no store, or it is in use
  2  the command line makes no sense";

/// Read everything, and make rollups anew that are damaged
///
/// A damaged rollup is made again from base rows where these are there. Damaged base rows are lost unless a
/// snapshot has them; questions about their time are answered without them, and say so.
#[derive(clap::Args)]
#[command(after_long_help = SCRUB_AFTER)]
pub(crate) struct ScrubOptions {
    #[command(flatten)]
    looking: Looking,
}

const SCRUB_AFTER: &str = "\
Examples:
  topdeck store scrub s
  topdeck store scrub s --rate 20MiB

Exit status:
  0  all is as it was written, or was mended
  1  something is damaged for good, or there is no store, or it is in use
  2  the command line makes no sense";

#[derive(clap::Args)]
struct Looking {
    /// The store's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Read at most so much a second, such as 20MiB
    #[arg(long, value_name = "SIZE", value_parser = parse::size)]
    rate: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn verify(options: &VerifyOptions) -> Result<ExitCode> {
    look(&options.looking, false)
}

pub(crate) fn scrub(options: &ScrubOptions) -> Result<ExitCode> {
    look(&options.looking, true)
}

fn look(options: &Looking, mend: bool) -> Result<ExitCode> {
    let told = told(&options.dir);
    let store = open(&options.dir)?;
    let mut progress = Progress::new();
    let mut each = |at: store::Progress| progress.bar(at.bytes, at.bytes_total);
    let report = match mend {
        true => store.scrub(options.rate, &mut each),
        false => store.verify(options.rate, &mut each),
    };
    progress.clear();
    let report = report.map_err(told)?;
    let text = match options.json {
        true => format!("{}\n", document(&report)),
        false => text(&options.dir, &report, mend),
    };
    print(text.as_bytes())?;
    let is_sound = report.damage.iter().all(|damage| mend && damage.is_mendable);
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// As many places as a person reads.
const DAMAGE_SHOWN: usize = 20;

fn text(dir: &Path, report: &Report, mend: bool) -> String {
    let read = format!(
        "read {} with {}, {}",
        plural(report.parts, "part", "parts"),
        plural(report.chunks, "chunk", "chunks"),
        show::bytes(report.bytes)
    );
    if report.damage.is_empty() {
        return format!("{read}: all is as it was written\n");
    }
    let mut text = format!("{read}: {}\n", plural(report.damage.len() as u64, "damage", "damages"));
    for damage in report.damage.iter().take(DAMAGE_SHOWN) {
        text.push_str(&format!(
            "  {}: {}{}\n",
            plain(&damage.file),
            plain(&damage.what),
            lost(damage)
        ));
    }
    let more = report.damage.len().saturating_sub(DAMAGE_SHOWN);
    if more > 0 {
        text.push_str(&format!("  and {} more\n", show::count(more as u64)));
    }
    let dir = show::typed(dir);
    if !report.mended.is_empty() {
        let days: Vec<String> = report.mended.iter().map(|&day| date(day)).collect();
        text.push_str(&format!("rolled up anew: {}\n", days.join(", ")));
    }
    if !mend && report.damage.iter().any(|damage| damage.is_mendable) {
        text.push_str(&format!("`topdeck store scrub {dir}` makes what can be made again\n"));
    }
    if report.damage.iter().any(|damage| !damage.is_mendable) {
        text.push_str(
            "what is lost for good comes back only from a snapshot: `topdeck store restore SNAPSHOT NEW-DIR`\n",
        );
    }
    text
}

fn lost(damage: &Damage) -> String {
    match (damage.is_mendable, damage.rows) {
        (true, _) => " (nothing is lost)".to_owned(),
        (false, Some(n)) => format!(" ({} lost)", rows(n)),
        (false, None) => " (it is not known how much is lost)".to_owned(),
    }
}

fn date(day: i64) -> String {
    let text = time::text(day);
    text.split(' ').next().unwrap_or(&text).to_owned()
}

fn document(report: &Report) -> Json {
    let damage = report.damage.iter().map(|damage| {
        Object(vec![
            ("file", Text(damage.file.clone())),
            ("what", Text(damage.what.clone())),
            ("rows", damage.rows.map_or(Null, integer)),
            ("is_mendable", Bool(damage.is_mendable)),
        ])
    });
    Object(vec![
        ("schema", integer(1)),
        ("parts", integer(report.parts)),
        ("chunks", integer(report.chunks)),
        ("bytes", integer(report.bytes)),
        ("damage", List(damage.collect())),
        (
            "mended_days_ns",
            List(report.mended.iter().map(|&day| Json::Integer(day.into())).collect()),
        ),
    ])
}
