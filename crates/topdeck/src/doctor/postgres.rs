//! `topdeck doctor postgres`: what topdeck can read of a PostgreSQL server.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Error, Result};
use client::print_stdout;
use postgres::ServerDiagnosis;
use render::text::escape_control;

/// Connect to a PostgreSQL server and show what topdeck can read there
///
/// Runs each query of [[postgres]] once, and shows its number of rows, or the reason why it fails
/// with the remedy. Changes nothing.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Connection string without a password, as `dsn` in the settings
    #[arg(value_name = "DSN", default_value = "", hide_default_value = true)]
    dsn: String,
    /// File with the password; default: PGPASSWORD, or .pgpass
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

const AFTER: &str = "\
Examples:
  topdeck doctor postgres
  topdeck doctor postgres 'host=db.example user=topdeck dbname=shop' --password-file password

Exit status:
  0  everything can be read
  1  something cannot be read, or the server is not reached; the reasons are printed
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let diagnosis = ServerDiagnosis::run(&options.dsn, options.password_file.as_deref());
    let found = runtime.block_on(diagnosis).map_err(Error::msg)?;
    let mut text = format!("{}\n", escape_control(&found.server));
    for (name, result) in &found.collectors {
        text.push_str(&match result {
            Ok(rows) => format!("  {name}: {rows} rows\n"),
            Err(reason) => format!("  {name}: {}\n", escape_control(reason)),
        });
    }
    print_stdout(text.as_bytes())?;
    let is_complete = found.collectors.iter().all(|(_, result)| result.is_ok());
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
