//! `topdeck in-flight`: operations in flight.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use client::{RequestParameters, ServerClient, print_message, print_stdout};
use inspect::find::{self, MatchPreference};
use inspect::{ObservedRequests, in_flight};

use crate::process_argument::find_process;
use crate::time;

/// Show operations in flight
///
/// Shows blocked operations before they finish; a histogram has them only afterwards. Covers all
/// running processes, or one process. For a process that has ended, ages refer to its last
/// activity. With --wire, shows the requests between other programs that a server observes on the
/// network ([wire] of its settings): the 100 oldest statements, as of its last interval.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Process ID, program name, or path of its file [default: all running processes]
    #[arg(value_name = "PROCESS", conflicts_with_all = ["wire", "server", "token_file", "ca"])]
    process: Option<String>,

    /// Requests that a server observes on the network, instead of operations that programs record;
    /// also if --server is given
    #[arg(long)]
    wire: bool,

    #[command(flatten)]
    server: ServerClient,

    /// Count per value of a tag of the operations or a label of their metric; also `process` and
    /// `metric`. With --wire: `service`, `protocol`, `verb`, `statement` or `wait`
    #[arg(long, value_name = "TAG")]
    by: Option<String>,

    /// Only operations at least this old, such as 1s
    #[arg(long, value_name = "DURATION", value_parser = time::parse_interval)]
    older_than: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  topdeck in-flight                        oldest operations of all processes
  topdeck in-flight db --by device         count per device
  topdeck in-flight --older-than 1s --by process
  topdeck in-flight --wire                 oldest queries and requests on the network
  topdeck in-flight --wire --by service --server https://north.example:7717

Exit status:
  0  success, also if there are none
  1  process not found, no process records operations in flight, the server was not reached, or
     it does not observe the network
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.wire || options.server.is_named() {
        return run_wire(options);
    }
    let mut processes = match &options.process {
        Some(process) => vec![find_process(process, MatchPreference::Running)?],
        None => {
            let (processes, problems) = find::find_all();
            problems.iter().for_each(print_message);
            processes.into_iter().filter(|process| process.running_pid().is_some()).collect()
        }
    };
    if processes.is_empty() {
        bail!("no running process exports metrics: {}", find::no_metrics_advice());
    }
    let (mut operations, as_of, errors) = in_flight::gather(&mut processes);
    errors.iter().for_each(print_message);
    if operations.tables == 0 {
        let who = match &processes[..] {
            [one] => format!("{} does not record", one.name()),
            all => format!("none of {} processes records", all.len()),
        };
        bail!("{who} operations in flight; programs do so with `shm::InFlight`");
    }
    if let Some(least_ns) = options.older_than {
        operations.retain_older_than(least_ns);
    }
    let by = options.by.as_deref();
    let text = match options.json {
        true => format!("{}\n", in_flight::to_json(by, &operations, &as_of)),
        false => in_flight::to_text(by, &processes, &operations, &as_of),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn run_wire(options: &Options) -> Result<ExitCode> {
    let status = options.server.get("/v1/status", RequestParameters::default())?;
    let mut requests = ObservedRequests::parse(&status).with_context(|| options.server.url())?;
    if let Some(least_ns) = options.older_than {
        requests.retain_older_than(least_ns);
    }
    let by = options.by.as_deref();
    let text = match options.json {
        true => format!("{}\n", requests.to_json(by)?),
        false => requests.to_text(by)?,
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
