//! `topdeck store verify` and `scrub`: check all checksums; repair.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use store::{ScrubDamage, ScrubReport};

use crate::journal::parse;
use crate::journal::progress_line::ProgressLine;
use crate::output::print_stdout;
use crate::store::{open, sample_count_text, with_dir};
use api::json::Json::{self, Bool, List, Null, Object, Text};
use api::json::integer;
use render::bytes::format_bytes;
use render::text::escape_control;
use render::text::plural;
use render::text::shell_quote;
use render::time::precise_time_text;
use render::value_formatter;

/// Verify a store: read everything and report damage, without changes
#[derive(clap::Args)]
#[command(after_long_help = VERIFY_AFTER)]
pub(crate) struct StoreVerifyOptions {
    #[command(flatten)]
    args: VerifyArgs,
}

const VERIFY_AFTER: &str = "\
Examples:
  topdeck store verify s
  topdeck store verify s --rate 20MiB --json

Exit status:
  0  the store is intact
  1  something is damaged, or the store was not found or is in use
  2  usage error";

/// Verify a store and rebuild damaged rollups
///
/// A damaged rollup is rebuilt from base samples if they exist. Damaged base samples are lost unless a
/// snapshot has them; queries of their time range return results without them and report the gap.
#[derive(clap::Args)]
#[command(after_long_help = SCRUB_AFTER)]
pub(crate) struct ScrubOptions {
    #[command(flatten)]
    args: VerifyArgs,
}

const SCRUB_AFTER: &str = "\
Examples:
  topdeck store scrub s
  topdeck store scrub s --rate 20MiB

Exit status:
  0  the store is intact, or was repaired
  1  something cannot be repaired, or the store was not found or is in use
  2  usage error";

#[derive(clap::Args)]
struct VerifyArgs {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Read rate limit per second, such as 20MiB
    #[arg(long, value_name = "SIZE", value_parser = parse::size)]
    rate: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn verify(options: &StoreVerifyOptions) -> Result<ExitCode> {
    run_check(&options.args, false)
}

pub(crate) fn scrub(options: &ScrubOptions) -> Result<ExitCode> {
    run_check(&options.args, true)
}

fn run_check(options: &VerifyArgs, mend: bool) -> Result<ExitCode> {
    let describe_error = with_dir(&options.dir);
    let store = open(&options.dir)?;
    let mut progress = ProgressLine::new();
    let mut each = |at: store::ScrubProgress| progress.bar(at.bytes, at.bytes_total);
    let report = match mend {
        true => store.scrub(options.rate, &mut each),
        false => store.verify(options.rate, &mut each),
    };
    progress.clear();
    let report = report.map_err(describe_error)?;
    let text = match options.json {
        true => format!("{}\n", report_json(&report)),
        false => report_text(&options.dir, &report, mend),
    };
    print_stdout(text.as_bytes())?;
    let is_sound = report.damage.iter().all(|damage| mend && damage.is_rebuildable);
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Maximum number of damaged locations printed.
const DAMAGE_SHOWN: usize = 20;

fn report_text(dir: &Path, report: &ScrubReport, mend: bool) -> String {
    let read = format!(
        "read {} with {}, {}",
        plural(report.parts, "part", "parts"),
        plural(report.chunks, "chunk", "chunks"),
        format_bytes(report.bytes)
    );
    if report.damage.is_empty() {
        return format!("{read}: intact, all checksums match\n");
    }
    let mut text = format!("{read}: {}\n", plural(report.damage.len() as u64, "damage", "damages"));
    for damage in report.damage.iter().take(DAMAGE_SHOWN) {
        text.push_str(&format!(
            "  {}: {}{}\n",
            escape_control(&damage.file),
            escape_control(&damage.description),
            loss_text(damage)
        ));
    }
    let more = report.damage.len().saturating_sub(DAMAGE_SHOWN);
    if more > 0 {
        text.push_str(&format!("  and {} more\n", value_formatter::count(more as u64)));
    }
    let dir = shell_quote(dir);
    if !report.rebuilt_days.is_empty() {
        let days: Vec<String> = report.rebuilt_days.iter().map(|&day| date(day)).collect();
        text.push_str(&format!("rollups rebuilt: {}\n", days.join(", ")));
    }
    if !mend && report.damage.iter().any(|damage| damage.is_rebuildable) {
        text.push_str(&format!("`topdeck store scrub {dir}` rebuilds damaged rollups\n"));
    }
    if report.damage.iter().any(|damage| !damage.is_rebuildable) {
        text.push_str(
            "unrecoverable samples: restore a snapshot with `topdeck store restore SNAPSHOT \
             NEW-DIR`\n",
        );
    }
    text
}

fn loss_text(damage: &ScrubDamage) -> String {
    match (damage.is_rebuildable, damage.rows) {
        (true, _) => " (no samples lost)".to_owned(),
        (false, Some(n)) => format!(" ({} lost)", sample_count_text(n)),
        (false, None) => " (lost samples: unknown)".to_owned(),
    }
}

fn date(day: i64) -> String {
    let text = precise_time_text(day);
    text.split(' ').next().unwrap_or(&text).to_owned()
}

fn report_json(report: &ScrubReport) -> Json {
    let damage = report.damage.iter().map(|damage| {
        Object(vec![
            ("file", Text(damage.file.clone())),
            ("description", Text(damage.description.clone())),
            ("rows", damage.rows.map_or(Null, integer)),
            ("is_rebuildable", Bool(damage.is_rebuildable)),
        ])
    });
    Object(vec![
        ("schema", integer(2)),
        ("parts", integer(report.parts)),
        ("chunks", integer(report.chunks)),
        ("bytes", integer(report.bytes)),
        ("damage", List(damage.collect())),
        (
            "rebuilt_days_ns",
            List(report.rebuilt_days.iter().map(|&day| Json::Integer(day.into())).collect()),
        ),
    ])
}
