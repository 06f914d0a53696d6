//! `topdeck load sessions`: share of sessions that meet slow responses.

use std::process::ExitCode;

use anyhow::Result;
use client::print_stdout;
use load::Sessions;
use load::report::sessions;
use render::terminal::Terminal;

/// Share of sessions that hit a slow response
///
/// A session of n requests has none above the p-th percentile with probability p^n, if requests are
/// independent. So 1 - p^n of all sessions meet at least one response above it; and a share s of
/// sessions never exceeds the percentile s^(1/n).
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Page views per session
    #[arg(long, value_name = "N", value_parser = number())]
    page_views: u32,

    /// Requests per page view
    #[arg(long, value_name = "N", value_parser = number())]
    requests_per_page: u32,
}

const AFTER: &str = "\
Examples:
  topdeck load sessions --page-views 5 --requests-per-page 40
  topdeck load http://localhost:8080/ --rate 100 --page-views 5 --requests-per-page 40

Exit status:
  0  success
  2  usage error";

/// A positive number.
pub(crate) fn number() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let &Options { page_views, requests_per_page } = options;
    let text =
        sessions::text(Sessions { page_views, requests_per_page }, None, &Terminal::new(false));
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
