//! `topdeck in-flight`: operations in flight.

use std::process::ExitCode;

use anyhow::{Result, bail};
use api::document::labels;
use api::json::Json::{self, List, Null, Object, Text};
use api::json::integer;

use crate::command::{escape_control, print_message, print_stdout};
use crate::hist::value_formatter::count;
use crate::processes::find::{self, MatchPreference, MatchedProcess};
use crate::processes::operations::Operations;
use crate::processes::reference_time::{self, ReferenceTime};

/// Show operations in flight
///
/// What is stuck is seen here before it ends: a histogram knows an operation only after its end. Of all processes that run, or
/// of one; of one that is gone, ages are as of its last sign of life.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Process ID, program name, or path of its file [default: all running processes]
    #[arg(value_name = "PROCESS")]
    process: Option<String>,

    /// How many there are for each value of a tag or label; also `process` and `metric`
    #[arg(long, value_name = "TAG")]
    by: Option<String>,

    /// Only operations at least this old, such as 1s
    #[arg(long, value_name = "DURATION", value_parser = reference_time::parse_duration)]
    older_than: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  topdeck in-flight                        the oldest of all processes
  topdeck in-flight db --by device         how many on which device
  topdeck in-flight --older-than 1s --by process

Exit status:
  0  they are shown; there may be none
  1  there is no such process, or none shows what it has in flight
  2  usage error";

/// Operations in a list.
pub(crate) const LISTED_MAX: usize = 20;
const SCHEMA: u64 = 1;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut processes = match &options.process {
        Some(process) => vec![find::find_one(process, MatchPreference::Running)?],
        None => {
            let (processes, problems) = find::find_all();
            problems.iter().for_each(print_message);
            processes.into_iter().filter(|process| process.running_pid().is_some()).collect()
        }
    };
    if processes.is_empty() {
        bail!("no process that shows metrics runs here: {}", find::no_metrics_advice());
    }
    let mut operations = Operations::default();
    let mut as_of = ReferenceTime::unknown();
    for process in &mut processes {
        match process.attached.metrics() {
            Ok(metrics) => {
                as_of = ReferenceTime::for_process(process, &metrics);
                operations.add(&process.name(), &metrics, &as_of);
            }
            Err(error) => print_message(error),
        }
    }
    if operations.tables == 0 {
        let who = match &processes[..] {
            [one] => format!("{} does not show", one.name()),
            all => format!("none of {} processes shows", all.len()),
        };
        bail!("{who} what it has in flight: a program does with shm::InFlight");
    }
    if let Some(least_ns) = options.older_than {
        operations.retain_older_than(least_ns);
    }
    let text = match options.json {
        true => format!("{}\n", report_json(options, &operations, &as_of)),
        false => report_text(options, &processes, &operations, &as_of),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn report_text(
    options: &Options,
    of: &[MatchedProcess],
    operations: &Operations,
    as_of: &ReferenceTime,
) -> String {
    let who = match of {
        [one] => one.name(),
        all => format!("{} processes", count(all.len() as u64)),
    };
    let n = count(operations.count());
    let mut text = escape_control(&format!("{n} in flight in {who}, {}", as_of.sentence())) + "\n";
    if operations.count() > 0 {
        text.push('\n');
    }
    let shown = match &options.by {
        Some(by) if operations.count() > 0 => {
            text.push_str(&operations.group_table(by));
            operations.list.len()
        }
        None if !operations.list.is_empty() => {
            text.push_str(&operations.oldest_table(LISTED_MAX));
            LISTED_MAX
        }
        _ => LISTED_MAX,
    };
    for line in operations.omissions(shown) {
        text.push_str(&format!("{line}\n"));
    }
    text
}

fn report_json(options: &Options, operations: &Operations, as_of: &ReferenceTime) -> Json {
    let age = |ns: Option<u64>| ns.map_or(Null, integer);
    let mut fields = vec![
        ("schema", integer(SCHEMA)),
        ("as_of_ns", as_of.unix_ns.map_or(Null, |ns| Json::Integer(ns.into()))),
        ("as_of", Text(as_of.basis.clone())),
        ("count", integer(operations.count())),
        ("not_listed", integer(operations.unlisted)),
        ("younger", integer(operations.too_young)),
    ];
    if let Some(by) = &options.by {
        let groups = operations.groups(by).into_iter().map(|group| {
            Object(vec![
                ("value", group.value.map_or(Null, Text)),
                ("count", integer(group.count)),
                ("p50_age_ns", age(group.p50_ns)),
                ("oldest_age_ns", age(group.oldest_ns)),
            ])
        });
        fields.extend([("by", Text(by.clone())), ("groups", List(groups.collect()))]);
    } else {
        let list = operations.list.iter().map(|open| {
            let (of_metric, of_operation) = open.tags.split_at(open.labels);
            let pairs = |tags: &[(String, String)]| {
                labels(tags.iter().map(|(name, value)| (&name[..], &value[..])))
            };
            Object(vec![
                ("process", Text(open.process.clone())),
                ("metric", Text(open.metric.clone())),
                ("labels", pairs(of_metric)),
                ("tags", pairs(of_operation)),
                ("number", integer(open.number)),
                ("age_ns", age(open.age_ns)),
            ])
        });
        fields.push(("operations", List(list.collect())));
    }
    Object(fields)
}
