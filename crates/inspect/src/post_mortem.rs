//! Post mortem of ended processes, as text.

use render::table::format_table;
use render::text::escape_control;
use render::value_formatter::count;
use shm::ProcessState;

use crate::find::MatchedProcess;
use crate::in_flight::LISTED_MAX;
use crate::metric_patterns::MetricPatterns;
use crate::operations::Operations;
use crate::reference_time::{self, ReferenceTime};
use crate::{InspectError, Result, listing, report};

/// Table of crashed processes, latest created file first, and errors of those that could not be
/// read.
pub fn terminated_table(mut processes: Vec<MatchedProcess>) -> Result<(String, Vec<shm::Error>)> {
    processes.retain(|process| process.attached.metrics_file().state == ProcessState::Terminated);
    if processes.is_empty() {
        let message =
            "no metrics file of a crashed process found; `topdeck ls --all` lists all processes";
        return Err(InspectError::NoProcess(message.to_owned()));
    }
    let mut errors = Vec::new();
    let heading = ["pid", "program", "created", "in flight", "oldest", "latest sign of life"];
    let mut rows = vec![heading.map(str::to_owned)];
    for process in &mut processes {
        let (created, program, pid) = (
            listing::created_text(process),
            escape_control(process.program()),
            process.attached.pid().to_string(),
        );
        let metrics = match process.attached.metrics() {
            Ok(metrics) => metrics,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let as_of = ReferenceTime::for_process(process, &metrics);
        let mut operations = Operations::default();
        operations.add(&process.name(), &metrics, &as_of);
        let (in_flight, oldest) = match operations.tables {
            0 => ("not shown".to_owned(), String::new()),
            _ => (count(operations.count()), operations.oldest_age()),
        };
        let sign = as_of.unix_ns.map_or_else(|| "unknown".to_owned(), reference_time::time_ms_text);
        rows.push([pid, program, created, in_flight, oldest, sign]);
    }
    Ok((format_table(&rows, [true, false, false, true, true, false]), errors))
}

/// Post mortem of an ended process: in-flight operations by age, or in groups by the tag `by`, and
/// all metrics.
pub fn to_text(mut process: MatchedProcess, by: Option<&str>) -> Result<String> {
    if process.running_pid().is_some() {
        let pid = process.attached.pid();
        return Err(InspectError::NoProcess(format!(
            "{} runs; see it with `topdeck cat {pid}` or `topdeck in-flight {pid}`",
            process.name()
        )));
    }
    let metrics = process.attached.metrics()?;
    let as_of = ReferenceTime::for_process(&process, &metrics);
    let mut operations = Operations::default();
    operations.add(&process.name(), &metrics, &as_of);
    let mut lines = listing::heading_lines(&process);
    if let Some(reader) = process.attached.reader()
        && !process.is_copy
    {
        lines.push(format!("  end      {}", reference_time::exit_text(&reader.process())));
    }
    lines.push(format!("  ages     {}", as_of.sentence()));
    let mut text = String::new();
    for line in lines {
        text.push_str(&format!("{}\n", escape_control(&line)));
    }
    text.push('\n');
    text.push_str(&match (operations.tables, operations.count()) {
        (0, _) => "It had no table of in-flight operations.\n".to_owned(),
        (_, 0) => "Nothing was in flight.\n".to_owned(),
        (_, 1) => "1 operation was in flight:\n".to_owned(),
        (_, n) => format!("{} operations were in flight:\n", count(n)),
    });
    if let Some(by) = by.filter(|_| operations.count() > 0) {
        text.push_str(&operations.group_table(by));
    } else if !operations.list.is_empty() {
        text.push_str(&operations.oldest_table(LISTED_MAX));
    }
    let shown = if by.is_some() { operations.list.len() } else { LISTED_MAX };
    for line in operations.omissions(shown) {
        text.push_str(&format!("{line}\n"));
    }
    text.push_str("\nLast values:\n");
    match metrics.is_empty() {
        true => text.push_str("  nothing\n"),
        false => text.push_str(&report::metrics_table(&metrics, &MetricPatterns::new(&[]), &as_of)),
    }
    Ok(text)
}
