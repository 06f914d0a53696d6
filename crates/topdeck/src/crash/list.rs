//! `topdeck crash ls`, `group` and `show`: the crashes that a server has.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::process::ExitCode;

use anyhow::{Result, bail};
use client::{RequestParameters, ServerClient, print_stdout};
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use render::time::{format_ns, precise_time_text};
use serde_json::{Value, json};

use crate::time::{self, TimeExpr};

/// Path of crashes.
const PATH: &str = "/v1/crashes";
/// Characters of a build ID that are shown.
const BUILD_LENGTH: usize = 12;

/// Which crashes are shown.
#[derive(clap::Args)]
struct CrashSelection {
    /// Start of the range: 2026-11-09T12:30:00Z, -7d
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true, default_value = "-30d")]
    from: TimeExpr,

    /// End of the range, also: now
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true, default_value = "now")]
    to: TimeExpr,

    /// Matchers of labels: service, program, host, signature, build, reason
    #[arg(long, value_name = "SELECTOR")]
    selector: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

/// List crashes, the latest last
#[derive(clap::Args)]
pub(super) struct LsOptions {
    #[command(flatten)]
    selection: CrashSelection,
}

/// Show one line per signature: how often, since when, on which hosts, in which builds
///
/// The build is that of the first crash with the signature in the range: what is new in it.
#[derive(clap::Args)]
pub(super) struct CrashGroupOptions {
    #[command(flatten)]
    selection: CrashSelection,
}

/// Show the latest crash with a signature: stack, operations in flight, metrics
#[derive(clap::Args)]
pub(super) struct ShowOptions {
    /// Signature, or its beginning
    #[arg(value_name = "SIGNATURE")]
    signature: String,

    #[command(flatten)]
    selection: CrashSelection,
}

/// A crash as the server has it.
struct Crash {
    time_ns: i64,
    labels: Value,
    notice: Value,
}

impl Crash {
    fn label(&self, name: &str) -> &str {
        self.labels[name].as_str().unwrap_or("")
    }

    fn to_json(&self) -> Value {
        json!({ "time_ns": self.time_ns, "labels": self.labels, "notice": self.notice })
    }
}

impl CrashSelection {
    /// The crashes in the range, the earliest first.
    fn read(&self) -> Result<(Vec<Crash>, bool)> {
        let now = journal::wall_clock()();
        let parameters = RequestParameters::default()
            .with_ns("from", self.from.to_unix_ns(now))
            .with_ns("to", self.to.to_unix_ns(now))
            .with_option("selector", self.selector.as_ref())
            .with("limit", 100_000);
        let mut answer = self.server.get(PATH, parameters)?;
        let is_cut = answer["truncated"] == true;
        let crashes = match answer["crashes"].take() {
            Value::Array(crashes) => crashes,
            _ => bail!("unexpected response of {PATH}"),
        };
        let crash = |mut crash: Value| Crash {
            time_ns: crash["start_ns"].as_i64().unwrap_or(0),
            notice: serde_json::from_str(crash["text"].as_str().unwrap_or("")).unwrap_or_default(),
            labels: crash["tags"].take(),
        };
        Ok((crashes.into_iter().map(crash).collect(), is_cut))
    }

    fn print(&self, table: &mut TextTable, json: Vec<Value>, is_cut: bool) -> Result<ExitCode> {
        if is_cut {
            table.remark("limit of the response reached: earlier crashes are not included".into());
        }
        let text = match self.json {
            true => format!("{}\n", json!({ "schema": 1, "truncated": is_cut, "crashes": json })),
            false if json.is_empty() => "no crashes in the range\n".to_owned(),
            false => table.text(&Terminal::new(false)),
        };
        print_stdout(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn title(notice: &Value) -> String {
    escape_control(notice["title"].as_str().unwrap_or("unknown"))
}

fn short_build(build: &str) -> String {
    escape_control(build).chars().take(BUILD_LENGTH).collect()
}

pub(super) fn ls(options: &LsOptions) -> Result<ExitCode> {
    let (crashes, is_cut) = options.selection.read()?;
    let columns = ["time", "host", "service", "crash", "build", "signature"].map(|it| (it, false));
    let mut table = TextTable::new(&columns);
    for crash in &crashes {
        let text = |name| escape_control(crash.label(name));
        table.row(vec![
            precise_time_text(crash.time_ns),
            text("host"),
            text("service"),
            title(&crash.notice),
            short_build(crash.label("build")),
            text("signature"),
        ]);
    }
    options.selection.print(&mut table, crashes.iter().map(Crash::to_json).collect(), is_cut)
}

/// Crashes with one signature.
struct CrashGroup<'a> {
    first: &'a Crash,
    last: &'a Crash,
    count: u64,
    hosts: BTreeSet<&'a str>,
    builds: BTreeSet<&'a str>,
    uptimes_ns: Vec<u64>,
}

fn groups(crashes: &[Crash]) -> Vec<CrashGroup<'_>> {
    let mut groups: HashMap<&str, CrashGroup<'_>> = HashMap::new();
    for crash in crashes {
        let group = groups.entry(crash.label("signature")).or_insert_with(|| {
            let (hosts, builds) = (BTreeSet::new(), BTreeSet::new());
            let (count, uptimes_ns) = (0, Vec::new());
            CrashGroup { first: crash, last: crash, count, hosts, builds, uptimes_ns }
        });
        group.last = crash;
        group.count += 1;
        group.hosts.insert(crash.label("host"));
        group.builds.insert(crash.label("build"));
        group.uptimes_ns.extend(crash.notice["uptime_ns"].as_u64());
    }
    let mut groups: Vec<CrashGroup<'_>> = groups.into_values().collect();
    groups.iter_mut().for_each(|group| group.uptimes_ns.sort_unstable());
    // Of two with the same time, the order is that of signatures.
    groups.sort_unstable_by_key(|it| (Reverse(it.last.time_ns), it.first.label("signature")));
    groups
}

pub(super) fn group(options: &CrashGroupOptions) -> Result<ExitCode> {
    let (crashes, is_cut) = options.selection.read()?;
    let mut table = TextTable::new(&[
        ("crashes", true),
        ("service", false),
        ("crash", false),
        ("first", false),
        ("last", false),
        ("hosts", true),
        ("builds", true),
        ("first build", false),
        ("uptime p50", true),
        ("signature", false),
    ]);
    let mut json = Vec::new();
    for group in groups(&crashes) {
        let uptime_ns = group.uptimes_ns.get(group.uptimes_ns.len() / 2).copied();
        table.row(vec![
            group.count.to_string(),
            escape_control(group.last.label("service")),
            title(&group.last.notice),
            precise_time_text(group.first.time_ns),
            precise_time_text(group.last.time_ns),
            group.hosts.len().to_string(),
            group.builds.len().to_string(),
            short_build(group.first.label("build")),
            uptime_ns.map_or_else(String::new, |ns| format_ns(ns as f64)),
            escape_control(group.last.label("signature")),
        ]);
        json.push(json!({
            "signature": group.last.label("signature"),
            "title": group.last.notice["title"],
            "service": group.last.label("service"),
            "count": group.count,
            "first_ns": group.first.time_ns,
            "last_ns": group.last.time_ns,
            "hosts": group.hosts,
            "builds": group.builds,
            "first_build": group.first.label("build"),
            "uptime_p50_ns": uptime_ns,
        }));
    }
    options.selection.print(&mut table, json, is_cut)
}

pub(super) fn show(options: &ShowOptions) -> Result<ExitCode> {
    let (crashes, _) = options.selection.read()?;
    let wanted = |crash: &&Crash| crash.label("signature").starts_with(&options.signature);
    let Some(crash) = crashes.iter().rev().find(wanted) else {
        bail!(
            "no crash with the signature {:?}; `topdeck crash group` lists all",
            options.signature
        )
    };
    let text = match options.selection.json {
        true => format!("{}\n", crash.to_json()),
        false => {
            let host = escape_control(crash.label("host"));
            format!(
                "{} on {host}\n{}",
                precise_time_text(crash.time_ns),
                notice_text(&crash.notice)
            )
        }
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// A notice as text.
pub(super) fn notice_text(notice: &Value) -> String {
    let word = |value: &Value| match value {
        Value::String(text) => escape_control(text),
        other => escape_control(&other.to_string()),
    };
    let mut text = format!("{}\n", title(notice));
    for name in [
        "signature",
        "program",
        "executable",
        "build_id",
        "unit",
        "container",
        "pid",
        "uid",
        "thread",
        "thread_count",
        "fault_address",
    ] {
        if !notice[name].is_null() {
            text.push_str(&format!("  {name:14} {}\n", word(&notice[name])));
        }
    }
    if let Some(uptime_ns) = notice["uptime_ns"].as_u64() {
        text.push_str(&format!("  {:14} {}\n", "uptime", format_ns(uptime_ns as f64)));
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let frames = list(&notice["frames"]);
    text.push_str(if frames.is_empty() { "\nNo stack.\n" } else { "\nStack:\n" });
    for (number, frame) in frames.iter().enumerate() {
        let module = word(&frame["module"]);
        let module = module.rsplit('/').next().unwrap_or("");
        let own = if frame["is_own"] == true { ' ' } else { '-' };
        let function = match frame["function"].as_str() {
            Some("") | None => word(&frame["address"]),
            Some(function) => escape_control(function),
        };
        text.push_str(&format!("{number:4} {own} {function}  {module}\n"));
    }
    let state = &notice["last_state"];
    if !state.is_null() {
        text.push_str(&format!("\n{} operations in flight\n", word(&state["in_flight"])));
    }
    for operation in list(&state["operations"]) {
        let age = format_ns(operation["age_ns"].as_f64().unwrap_or(0.0));
        let (metric, tags) = (word(&operation["metric"]), word(&operation["tags"]));
        text.push_str(&format!("  {age:>10}  {metric} {tags}\n"));
    }
    for metric in list(&state["metrics"]) {
        let (name, labels) = (word(&metric["name"]), word(&metric["labels"]));
        text.push_str(&format!("  {name} {labels} = {}\n", word(&metric["value"])));
    }
    for remark in list(&notice["remarks"]) {
        text.push_str(&format!("{}\n", word(&remark)));
    }
    text
}
