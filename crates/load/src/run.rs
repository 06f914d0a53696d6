//! A run: starts the workers, merges their reports, and finds why it is invalid.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use hist::Histogram;

use crate::connect_options::ConnectOptions;
use crate::error::Error;
use crate::file_limits::FileLimits;
use crate::first_errors::FirstErrors;
use crate::observer::Observer;
use crate::run_result::RunResult;
use crate::schedule::SplitMix64;
use crate::settings::Settings;
use crate::tally::Tally;
use crate::worker::{Worker, WorkerConfig, WorkerReport};

/// Wait for the initial connections.
const CONNECT_WAIT_NS: u64 = 2_000_000_000;
/// Delay between the start signal and the common start time.
const LEAD_NS: u64 = 20_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Per process: pidfd and standard error.
const FILES_OF_PROCESS: usize = 2;
/// Files open besides connections and processes.
const FILES_ELSE: usize = 64;

/// Runs the load. Once `stop` is set, no more requests are sent.
pub fn run(
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    observer: &mut dyn Observer,
) -> Result<RunResult, Error> {
    settings.check_connections()?;
    let programs = settings.resolve_programs()?;
    let connect_options = settings.target.as_ref();
    let connect_options =
        connect_options.map(|target| ConnectOptions::resolve(target, &settings.tls)).transpose()?;
    let files_of_each = if settings.is_command() { FILES_OF_PROCESS } else { 1 };
    let files = FileLimits::raise(settings.max_connections * files_of_each + FILES_ELSE)?;
    let workers = create_workers(settings, stop, &programs, &connect_options)?;
    let (sender, reports) = mpsc::channel();
    let threads = spawn_workers(workers, &sender)?;
    drop(sender);
    let (start_unix_ns, handles) = start_together(threads, observer);
    let mut run = RunResult::new(settings, start_unix_ns, files);
    collect_reports(&mut run, settings, &reports, observer);
    for handle in handles {
        if let Err(panic) = handle.join() {
            std::panic::resume_unwind(panic);
        }
    }
    run.stalls = merge_overlapping(std::mem::take(&mut run.stalls));
    run.invalid_reasons = run.find_invalid_reasons(settings.worker_count());
    Ok(run)
}

/// Creates a worker per thread, each with its part of the schedule and of the connections.
fn create_workers(
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    programs: &Arc<[Option<PathBuf>]>,
    connect_options: &Option<ConnectOptions>,
) -> Result<Vec<Worker>, Error> {
    let threads = settings.worker_count();
    let part_of = |all: usize, number: usize| all / threads + usize::from(number < all % threads);
    let connections = if settings.is_command() { 0 } else { settings.connections };
    let mut seeds = seeds(settings.seed);
    let mut workers = Vec::new();
    for number in 0..threads {
        workers.push(Worker::new(WorkerConfig {
            connect_options: connect_options.clone(),
            programs: Arc::clone(programs),
            number,
            threads,
            due: Box::new(settings.schedule.arrivals().skip(number).step_by(threads)),
            requests: settings.requests.clone(),
            seed: seeds.next(),
            connections: part_of(connections, number),
            max_connections: part_of(settings.max_connections, number),
            timeout_ns: settings.timeout_ns,
            duration_ns: settings.schedule.duration_ns(),
            grace_period_ns: settings.grace_period_ns,
            has_dedicated_cpu: threads < settings.processors,
            stop: stop.clone(),
            abort: settings.abort.clone(),
        })?);
    }
    Ok(workers)
}

/// A worker thread that opens its connections and then waits for the start signal.
struct WorkerThread {
    ready: mpsc::Receiver<()>,
    start: mpsc::Sender<u64>,
    handle: JoinHandle<()>,
}

/// If a thread cannot be started, or panics, the others receive no start signal and exit.
fn spawn_workers(
    workers: Vec<Worker>,
    reports: &mpsc::Sender<WorkerReport>,
) -> Result<Vec<WorkerThread>, Error> {
    let mut threads = Vec::new();
    for mut worker in workers {
        let (is_ready, ready) = mpsc::channel();
        let (start, started) = mpsc::channel();
        let reports = reports.clone();
        let handle = thread::Builder::new().spawn(move || {
            worker.open_initial_connections(CONNECT_WAIT_NS);
            let _ = is_ready.send(());
            if let Ok(start_ns) = started.recv() {
                worker.run(start_ns, &reports);
            }
        })?;
        threads.push(WorkerThread { ready, start, handle });
    }
    Ok(threads)
}

/// Waits until all threads are ready, and starts them at the same time. Returns that time.
fn start_together(
    threads: Vec<WorkerThread>,
    observer: &mut dyn Observer,
) -> (i64, Vec<JoinHandle<()>>) {
    let are_ready = threads.iter().all(|thread| thread.ready.recv().is_ok());
    let start_ns = clock::now() + LEAD_NS;
    let start_unix_ns = clock::wall().unix_ns + (start_ns as i64 - clock::now() as i64);
    let mut handles = Vec::new();
    for thread in threads {
        if are_ready {
            let _ = thread.start.send(start_ns);
        }
        handles.push(thread.handle);
    }
    if are_ready {
        observer.run_started(start_ns, start_unix_ns);
    }
    (start_unix_ns, handles)
}

/// Merges the reports of all workers until they have finished.
fn collect_reports(
    run: &mut RunResult,
    settings: &Settings,
    reports: &mpsc::Receiver<WorkerReport>,
    observer: &mut dyn Observer,
) {
    let mut first_errors = FirstErrors::default();
    let mut seconds = PendingSeconds { workers: settings.worker_count(), open: BTreeMap::new() };
    for report in reports {
        match report {
            WorkerReport::Interval(end_ns, tally) => {
                run.duration_ns = run.duration_ns.max(end_ns);
                seconds.add_interval(end_ns, &tally);
            }
            WorkerReport::Final(summary) => {
                run.duration_ns = run.duration_ns.max(summary.duration_ns);
                seconds.add_final(summary.duration_ns, &summary.tally);
                for (second, histogram) in summary.per_second {
                    merge(run.per_second.entry(second).or_default(), &histogram);
                }
                for ((_, mine), theirs) in run.per_request.iter_mut().zip(&summary.per_request) {
                    merge(mine, theirs);
                }
                run.stalls.extend(summary.stalls);
                run.is_interrupted |= summary.is_interrupted;
                first_errors.merge(summary.first_errors);
            }
        }
        while let Some((end_ns, tally)) = seconds.next() {
            run.tally.merge(&tally);
            observer.second_ended(end_ns.min(run.duration_ns), &tally);
        }
    }
    let secret = settings.target.as_ref().and_then(|target| target.protocol.secret());
    run.first_errors = first_errors.finish(secret);
}

/// Seeds of the workers' request choice. The schedule uses the seed itself; with the same numbers
/// the gap before a request would determine its kind.
fn seeds(seed: u64) -> SplitMix64 {
    const REQUESTS: u64 = 0x6c6f_6164_2072_6571;
    SplitMix64::new(seed ^ REQUESTS)
}

/// Seconds that some workers have not reported yet, by end.
struct PendingSeconds {
    /// Workers that have not finished.
    workers: usize,
    /// Reports so far: count and sum.
    open: BTreeMap<u64, (usize, Tally)>,
}

impl PendingSeconds {
    /// Adds a worker's report of the second that ended at `end_ns`.
    fn add_interval(&mut self, end_ns: u64, tally: &Tally) {
        self.add(end_ns, tally).0 += 1;
    }

    /// Adds a worker's last report. It sends no more.
    fn add_final(&mut self, duration_ns: u64, rest: &Tally) {
        self.workers -= 1;
        let end_ns = (duration_ns / SECOND_NS + 1).saturating_mul(SECOND_NS);
        self.add(end_ns, rest);
    }

    fn add(&mut self, end_ns: u64, part: &Tally) -> &mut (usize, Tally) {
        let open = self.open.entry(end_ns).or_default();
        open.1.merge_concurrent(part);
        open
    }

    /// The next complete second.
    fn next(&mut self) -> Option<(u64, Tally)> {
        let first = self.open.first_entry().filter(|one| one.get().0 >= self.workers)?;
        let (end_ns, (_, tally)) = first.remove_entry();
        Some((end_ns, tally))
    }
}

/// Merges overlapping intervals: simultaneous stalls of threads are one stall.
fn merge_overlapping(mut pieces: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    model::sort::by(&mut pieces, Ord::cmp);
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in pieces {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

fn merge(into: &mut Histogram, other: &Histogram) {
    into.merge(other).expect("BUG: recorders of one scheme");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Requests;
    use crate::schedule::Schedule;

    /// With the same random numbers for both, the rarer kind would follow the longest gaps.
    #[test]
    fn request_choice_is_independent_of_arrivals() {
        let text = "[[request]]\npath = '/rare'\n[[request]]\nweight = 9\npath = '/often'\n";
        let requests = Requests::parse(text, std::path::Path::new("")).unwrap();
        for seed in [1, 7, 1_000_000] {
            let arrival_process = crate::schedule::ArrivalProcess::Poisson { seed };
            let arrivals = Schedule::constant(1_000.0, 100 * SECOND_NS, arrival_process).arrivals();
            let mut random = SplitMix64::new(seeds(seed).next());
            let (mut before, mut gaps) = (0, [(0, 0); 2]);
            for due in arrivals {
                let (sum, count) = &mut gaps[requests.sample(&mut random).index];
                (*sum, *count) = (*sum + due - before, *count + 1);
                before = due;
            }
            let [rare, often] = gaps.map(|(sum, count)| sum as f64 / f64::from(count));
            // 10,000 gaps give the mean to 1 %.
            assert!((rare / often - 1.0).abs() < 0.05, "{rare} ns before the rare, {often} ns");
            assert!((9_000..11_000).contains(&gaps[0].1), "{gaps:?}");
        }
    }

    /// Ends of complete seconds, with their scheduled requests.
    fn complete_seconds(seconds: &mut PendingSeconds) -> Vec<(u64, u64)> {
        let all = std::iter::from_fn(|| seconds.next());
        let all = all.inspect(|(_, tally)| assert_eq!(tally.in_flight_peak, tally.scheduled));
        all.map(|(end_ns, tally)| (end_ns / SECOND_NS, tally.scheduled)).collect()
    }

    #[test]
    fn finished_workers_do_not_delay_seconds() {
        let of = |scheduled| Tally { scheduled, in_flight_peak: scheduled, ..Tally::default() };
        let mut seconds = PendingSeconds { workers: 2, open: BTreeMap::new() };
        seconds.add_interval(SECOND_NS, &of(1));
        seconds.add_interval(2 * SECOND_NS, &of(2));
        assert_eq!(complete_seconds(&mut seconds), []);
        seconds.add_interval(SECOND_NS, &of(10));
        assert_eq!(complete_seconds(&mut seconds), [(1, 11)]);
        // In the middle of a second that the other worker has reported.
        seconds.add_final(SECOND_NS * 3 / 2, &of(20));
        assert_eq!(complete_seconds(&mut seconds), [(2, 22)]);
        // Everything that follows is from the other worker.
        seconds.add_interval(3 * SECOND_NS, &of(3));
        assert_eq!(complete_seconds(&mut seconds), [(3, 3)]);
        seconds.add_final(3 * SECOND_NS, &of(4));
        assert_eq!(complete_seconds(&mut seconds), [(4, 4)]);
        assert!(seconds.open.is_empty());
    }

    #[test]
    fn simultaneous_stalls_are_one() {
        let pieces = vec![(30, 40), (0, 10), (5, 7), (8, 20), (41, 42)];
        assert_eq!(merge_overlapping(pieces), [(0, 20), (30, 40), (41, 42)]);
        assert_eq!(merge_overlapping(Vec::new()), []);
    }
}
