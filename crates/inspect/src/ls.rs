//! List of the processes with metrics, as text.

use render::table::format_table;
use render::text::escape_control;
use render::value_formatter::count;
use shm::ProcessState;

use crate::find::MatchedProcess;
use crate::listing;

/// Table of running or all processes, and the number of hidden ones.
pub fn to_text(processes: &mut [MatchedProcess], with_all: bool) -> String {
    let (gone, running): (Vec<&MatchedProcess>, Vec<&MatchedProcess>) =
        processes.iter().partition(|process| process.running_pid().is_none());
    let others = (!with_all && !gone.is_empty()).then(|| hidden_summary(&gone));
    let none_runs = running.is_empty();
    let mut text = String::new();
    if with_all || !none_runs {
        let heading = ["pid", "program", "format", "user", "since", "series", "state", "memory"];
        let mut rows = vec![heading.map(str::to_owned)];
        let visible = processes.iter_mut().filter(|it| with_all || it.running_pid().is_some());
        rows.extend(visible.map(process_row));
        let right = [true, false, false, false, false, true, false, true];
        text.push_str(&format_table(&rows, right));
    } else {
        text.push_str("  no running process exposes metrics\n");
    }
    text.extend(others);
    text
}

fn process_row(process: &mut MatchedProcess) -> [String; 8] {
    let series = listing::series_count_text(process);
    [
        process.attached.pid().to_string(),
        escape_control(process.program()),
        process.attached.metrics_file().format.name().to_owned(),
        escape_control(&listing::owner_name(process)),
        listing::created_text(process),
        series,
        process.state_text().to_owned(),
        listing::memory_text(process),
    ]
}

/// Number of hidden processes, and the option that lists them.
fn hidden_summary(hidden: &[&MatchedProcess]) -> String {
    let of = |state| hidden.iter().filter(|it| it.attached.metrics_file().state == state).count();
    let parts = [
        (of(ProcessState::Terminated), "terminated"),
        (of(ProcessState::Exited), "exited"),
        (of(ProcessState::Replaced), "were replaced"),
        (of(ProcessState::Unknown), "may run elsewhere"),
    ];
    let parts = parts.into_iter().filter(|(n, _)| *n > 0);
    let parts: Vec<String> = parts.map(|(n, what)| format!("{} {what}", count(n as u64))).collect();
    format!("  Not listed: {}; --all lists them.\n", parts.join(", "))
}
