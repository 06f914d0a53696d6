//! `topdeck trace`: the waterfall of a trace.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use client::{RequestParameters, ServerClient, print_stdout};
use render::terminal::Terminal;

/// Show the spans of a trace as a waterfall
///
/// The ids of traces are those of `topdeck exemplars`. A bar is solid where the span itself worked,
/// pale while its children did; the first time is that of the span, the second one without that of
/// its children. Failed spans, spans whose parent was not received, and clocks that differ are
/// marked.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Id of the trace: 32 hexadecimal digits
    #[arg(value_name = "ID")]
    id: String,

    /// Maximum number of spans
    #[arg(long, value_name = "N", default_value_t = 500)]
    limit: usize,

    /// Print JSON: the response of the server, in OTLP's form
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck trace 0af7651916cd43dd8448eb211c80319c
  topdeck exemplars latency --json | jq -r '.exemplars[0].trace_id' | xargs topdeck trace

Exit status:
  0  success
  1  the server does not have the trace, or the token lacks the scope
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let id = options.id.trim();
    ensure!(
        !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "trace id: found {id:?}, expected hexadecimal digits"
    );
    let path = format!("/api/v2/traces/{id}");
    let answer = options.server.get(&path, RequestParameters::default())?;
    let text = match options.json {
        true => format!("{answer}\n"),
        false => report::trace_text(id, &answer, options.limit, &Terminal::new(false)),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
