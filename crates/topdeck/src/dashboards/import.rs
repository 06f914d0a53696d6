//! `topdeck dashboards import`: converts dashboards of Grafana and stores them on a server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use api::json::Json::{self, Bool, List, Null, Object, Text};
use api::json::integer;
use client::{RequestParameters, ServerClient, print_message, print_stdout};
use grafana::{ConvertedDashboard, ImportNote};
use render::text::{escape_control, plural};
use serde_json::Value;

/// Path of dashboards.
const PATH: &str = "/v1/dashboards";
/// Maximum length of a dashboard's name.
const NAME_CHARS_MAX: usize = 64;

/// Import Grafana dashboards (JSON) into a server
///
/// Each PromQL query becomes a panel. Variables have the value with which the dashboard was saved.
/// What cannot be shown is listed with the reason.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Dashboards as exported by Grafana
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Only list what would be imported
    #[arg(long)]
    dry_run: bool,

    /// Name in the address [default: from the title]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Replace a dashboard with the same name
    #[arg(long)]
    replace: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck dashboards import node.json --dry-run
  topdeck dashboards import *.json --server https://north.example:7717 --token-file token
  topdeck dashboards import node.json --name node --replace

A server requires a token with the scope admin, except on loopback.

Exit status:
  0  all files are imported, though perhaps not all their panels
  1  a file could not be read, has no panel to import, or the server rejected it
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.name.is_some() && options.files.len() > 1 {
        bail!("--name needs a single file: {} are given", options.files.len());
    }
    let (mut imported, mut failed) = (Vec::new(), false);
    for file in &options.files {
        match import(options, file) {
            Ok((name, converted)) => {
                if !options.json {
                    print_stdout(file_text(options, file, &name, &converted).as_bytes())?;
                }
                imported.push(file_json(options, file, name, &converted));
            }
            Err(error) => {
                print_message(format_args!("{}: {error:#}", file.display()));
                failed = true;
            }
        }
    }
    if options.json {
        let all = Object(vec![("schema", integer(1)), ("files", List(imported))]);
        print_stdout(format!("{all}\n").as_bytes())?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Converts a file and stores the result; returns its name.
fn import(options: &Options, file: &Path) -> Result<(String, ConvertedDashboard)> {
    let text = std::fs::read(file).context("cannot read the file")?;
    let json: Value = serde_json::from_slice(&text)
        .map_err(|error| anyhow!("cannot parse the dashboard: {error}"))?;
    let converted = ConvertedDashboard::parse(&json)
        .map_err(|reason| anyhow!("cannot import the dashboard: {reason}"))?;
    let name = options.name.clone().unwrap_or_else(|| dashboard_name(&converted.title));
    if options.dry_run {
        return Ok((name, converted));
    }
    if converted.panel_count() == 0 {
        let notes = notes_text("not imported", &converted.left_out);
        bail!("no panel can be imported\n{}", notes.trim_end());
    }
    if !options.replace {
        let stored = options.server.get(PATH, RequestParameters::default())?;
        let stored = stored["dashboards"].as_array().map_or(&[][..], Vec::as_slice);
        if stored.iter().any(|stored| stored["name"] == name.as_str()) {
            bail!(
                "cannot import the dashboard: {name:?} exists; choose another name with --name, or \
                 replace it with --replace"
            );
        }
    }
    let body = format!("{:#}", converted.to_json());
    options.server.put(&format!("{PATH}/{name}"), "application/json", body.into())?;
    Ok((name, converted))
}

/// Name made of a title: letters, digits and single hyphens.
fn dashboard_name(title: &str) -> String {
    let mut name = String::new();
    for c in title.chars() {
        match c.is_ascii_alphanumeric() {
            true => name.push(c.to_ascii_lowercase()),
            false if name.is_empty() || name.ends_with('-') => {}
            false => name.push('-'),
        }
    }
    name.truncate(NAME_CHARS_MAX);
    let name = name.trim_end_matches('-');
    if name.is_empty() { "dashboard".to_owned() } else { name.to_owned() }
}

fn file_text(options: &Options, file: &Path, name: &str, converted: &ConvertedDashboard) -> String {
    let verb = if options.dry_run { "would be" } else { "is" };
    let mut text = format!(
        "{}: {} {verb} dashboard {name}, with {}\n",
        escape_control(&file.display().to_string()),
        escape_control(&format!("{:?}", converted.title)),
        plural(converted.panel_count(), "panel", "panels"),
    );
    if !converted.variables.is_empty() {
        let variables = converted.variables.join(", ");
        text.push_str(&format!("  variables: {}\n", escape_control(&variables)));
    }
    text.push_str(&notes_text("shown differently", &converted.changed));
    text.push_str(&notes_text("not imported", &converted.left_out));
    text
}

fn notes_text(title: &str, notes: &[ImportNote]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let lines = notes
        .iter()
        .map(|note| escape_control(&format!("    {}: {}", note.part, note.reason)) + "\n");
    format!("  {title}:\n{}", lines.collect::<String>())
}

fn file_json(options: &Options, file: &Path, name: String, converted: &ConvertedDashboard) -> Json {
    let notes = |notes: &[ImportNote]| {
        let note = |note: &ImportNote| {
            Object(vec![("part", Text(note.part.clone())), ("reason", Text(note.reason.clone()))])
        };
        List(notes.iter().map(note).collect())
    };
    let dashboard = if options.dry_run { converted.to_json() } else { Null };
    Object(vec![
        ("file", Text(file.display().to_string())),
        ("name", Text(name)),
        ("title", Text(converted.title.clone())),
        ("is_imported", Bool(!options.dry_run)),
        ("panels", integer(converted.panel_count())),
        ("variables", List(converted.variables.iter().cloned().map(Text).collect())),
        ("shown_differently", notes(&converted.changed)),
        ("not_imported", notes(&converted.left_out)),
        ("dashboard", dashboard),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_titles() {
        assert_eq!(dashboard_name("Node exporter: hosts"), "node-exporter-hosts");
        assert_eq!(dashboard_name("«Größe»"), "gr-e");
        assert_eq!(dashboard_name("…"), "dashboard");
        assert_eq!(dashboard_name(&"a ".repeat(60)).len(), 63);
    }
}
