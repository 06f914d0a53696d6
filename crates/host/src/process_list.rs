//! HTTP route of the process table that this host publishes each second in shared memory:
//! `docs/formats/process-table.md`.
//!
//! Processes are not series: they are not stored, and only the host itself can report them.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::shm_metrics::running_processes::{RunningProcess, RunningProcesses};
use role::json::Json::{self, Integer, List, Null, Object, Text};
use role::json::{integer, number};
use role::{Parameter, Route, RouteError, RouteFormat, RouteQuery, RouteSpec};
use shm::process_table::{self, CollectionMethod, ProcessRow, ProcessTable};

/// Default and maximum number of reported processes.
const LIMIT: usize = 2_000;
const LIMIT_MAX: usize = process_table::PROCESSES_MAX;

pub(crate) static ROUTE: RouteSpec = RouteSpec {
    name: "processes",
    path: "/v1/processes",
    about: "Processes of the server's host now: CPU usage, memory, threads.",
    parameters: &[Parameter::integer(
        "limit",
        "maximum number of processes, the busiest; default: 2,000",
    )],
    format: RouteFormat::Json,
};

/// Location of a host's process table.
#[derive(Clone, Debug)]
pub(crate) struct PublishedTable {
    /// Name of the host.
    pub(crate) host: String,
    /// Directory of the table; `None` for [`shm::metrics_dir`].
    pub(crate) dir: Option<PathBuf>,
    /// Running programs with metrics in shared memory.
    pub(crate) live: RunningProcesses,
}

/// Location of this host's process table, if one is published. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessList(Arc<Mutex<Option<PublishedTable>>>);

impl ProcessList {
    /// Sets the location of the table, or none.
    pub(crate) fn publish(&self, published: Option<PublishedTable>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = published;
    }

    /// HTTP route of the table.
    pub(crate) fn route(&self) -> Route {
        let own = self.clone();
        Route::new(&ROUTE, move |query| own.answer(query))
    }

    fn answer(&self, query: &RouteQuery) -> Result<Json, RouteError> {
        let limit = query.integer("limit", LIMIT, LIMIT_MAX)?;
        let published = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A missing table is a regular answer: clients that poll get no errors.
        let tables = read(published.as_ref());
        Ok(match (tables, published) {
            (Ok((now, before)), Some(published)) => {
                document(&published, &now, before.as_ref(), limit)
            }
            (tables, _) => none(tables.err().unwrap_or_default()),
        })
    }
}

/// The table and the previous table, or the reason why there is none.
fn read(
    published: Option<&PublishedTable>,
) -> Result<(ProcessTable, Option<ProcessTable>), String> {
    let off = "this topdeck publishes no processes: set processes = true in [host] of its settings";
    let dir = published.ok_or(off)?.dir.clone();
    let failed = |error: &dyn std::fmt::Display| {
        format!("the process table of this host cannot be read: {error}")
    };
    let dir = dir.map_or_else(shm::metrics_dir, Ok).map_err(|error| failed(&error))?;
    let two = process_table::read_newest_two(&dir.join(process_table::FILE_NAME));
    two.map_err(|error| failed(&error))
}

fn none(reason: String) -> Json {
    Object(vec![
        ("schema", integer(2)),
        ("host", Null),
        ("reason", Text(reason)),
        ("collected_ns", Null),
        ("interval_seconds", Null),
        ("source", Null),
        ("total", integer(0)),
        ("processes", List(Vec::new())),
    ])
}

/// A process and its CPU share since the previous table; `None` if unknown.
struct ProcessShare<'a> {
    process: &'a ProcessRow,
    busy: Option<f64>,
}

fn document(
    published: &PublishedTable,
    now: &ProcessTable,
    before: Option<&ProcessTable>,
    limit: usize,
) -> Json {
    let mut rows = rows(now, before);
    // Sorted by CPU use, then by memory: the limit cuts off the smallest.
    let key = |row: &ProcessShare<'_>| (row.busy.unwrap_or(0.0), row.process.rss_bytes as f64);
    model::sort::by(&mut rows, |a, b| {
        let ((busy_a, rss_a), (busy_b, rss_b)) = (key(a), key(b));
        busy_b
            .total_cmp(&busy_a)
            .then(rss_b.total_cmp(&rss_a))
            .then(a.process.pid.cmp(&b.process.pid))
    });
    let over = before.map_or(Null, |before| number(seconds(before, now)));
    let how = match now.collection.method {
        CollectionMethod::Bpf => "bpf",
        _ => "procfs",
    };
    let (total, live) = (rows.len() as u64, published.live.get());
    let rows = rows.iter().take(limit);
    let rows = rows.map(|one| row(one, live.get(&one.process.pid))).collect();
    Object(vec![
        ("schema", integer(2)),
        ("host", Text(published.host.clone())),
        ("reason", Null),
        ("collected_ns", Integer(now.collection.unix_ns.into())),
        ("interval_seconds", over),
        ("source", Text(how.to_owned())),
        ("total", integer(total)),
        ("processes", List(rows)),
    ])
}

fn seconds(before: &ProcessTable, now: &ProcessTable) -> f64 {
    now.collection.started_ns.saturating_sub(before.collection.started_ns) as f64 / 1e9
}

fn rows<'a>(now: &'a ProcessTable, before: Option<&ProcessTable>) -> Vec<ProcessShare<'a>> {
    let length = before.map(|before| seconds(before, now)).filter(|length| *length > 0.0);
    let known: HashMap<(u32, u64), u64> = before
        .into_iter()
        .flat_map(|before| &before.processes)
        .map(|one| ((one.pid, one.start), spent(one)))
        .collect();
    let busy = |process: &ProcessRow| {
        // A process that is not in the previous table used all its CPU time since.
        let before = known.get(&(process.pid, process.start)).copied().unwrap_or(0);
        length.map(|length| spent(process).saturating_sub(before) as f64 / 1e9 / length)
    };
    now.processes.iter().map(|process| ProcessShare { process, busy: busy(process) }).collect()
}

fn spent(process: &ProcessRow) -> u64 {
    process.user_ns.saturating_add(process.system_ns)
}

fn row(row: &ProcessShare<'_>, running: Option<&RunningProcess>) -> Json {
    let ProcessRow { pid, ppid, uid, threads, state, rss_bytes, .. } = *row.process;
    // Process names may contain any characters; the client must escape them.
    Object(vec![
        ("pid", integer(pid.into())),
        ("ppid", integer(ppid.into())),
        ("uid", integer(uid.into())),
        ("name", Text(row.process.name().into_owned())),
        ("state", Text(char::from(state).to_string())),
        ("threads", integer(threads.into())),
        ("cpu_cores", row.busy.map_or(Null, number)),
        ("cpu_seconds", number(spent(row.process) as f64 / 1e9)),
        ("resident_bytes", integer(rss_bytes)),
        ("program", running.map_or(Null, process_labels)),
    ])
}

/// Labels of the stored series of a process; a generation of `null` for one that has none yet.
fn process_labels(process: &RunningProcess) -> Json {
    Object(vec![
        ("process", Text(process.program.clone())),
        ("generation", process.generation.clone().map_or(Null, Text)),
        ("format", Text(process.format.clone())),
    ])
}
