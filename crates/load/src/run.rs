//! A run: workers that share a schedule, what they told, and whether it can be trusted.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;

use hist::Histogram;
use rustls_pki_types::ServerName;

use crate::connection::Dial;
use crate::doubt::{self, Doubt};
use crate::failure::Failure;
use crate::process;
use crate::protocol::Protocol;
use crate::request::Requests;
use crate::schedule::{Random, Schedule};
use crate::tally::Tally;
use crate::target::Target;
use crate::words::Words;
use crate::worker::{Share, Told, Worker};

/// What a run does.
#[derive(Clone)]
pub struct Settings {
    /// Where load goes.
    pub target: Target,
    /// What is trusted and shown, for targets in TLS.
    pub tls: net::tls::ClientTls,
    /// When requests are due.
    pub schedule: Schedule,
    /// What is sent.
    pub requests: Requests,
    /// What variables and weights are drawn from.
    pub seed: u64,
    /// Threads that send; each keeps a processor busy when it has much to do.
    pub threads: usize,
    /// Processors of this machine. Only with more of them than threads a thread stays awake near an answer.
    pub processors: usize,
    /// Connections that there are when the run begins; nothing of commands.
    pub connections: usize,
    /// Connections, or processes, that there are at the most. What finds none waits, and its response time goes on.
    pub connections_max: usize,
    /// So long after it was due a request has failed. Nanoseconds.
    pub timeout_ns: u64,
    /// How long answers are waited for after the last request was due. Nanoseconds.
    pub drain_ns: u64,
    /// When it is set, nothing is waited for any more: the run ends, with what there is.
    pub give_up: Arc<AtomicBool>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Run {
    /// All of it.
    pub tally: Tally,
    /// Response times by the second, counted from the start, in which requests were due.
    pub by_second: BTreeMap<u64, Histogram>,
    /// Response times by the kind of request, in the order of the set.
    pub by_request: Vec<(String, Histogram)>,
    /// When it began: nanoseconds since 1970.
    pub began_unix_ns: i64,
    /// From its beginning until the last answer, or until none was waited for any more. Nanoseconds.
    pub length_ns: u64,
    /// Whether it was stopped while something was still due.
    pub is_interrupted: bool,
    /// When the generator stood still, nanoseconds from the start.
    pub stalls: Vec<(u64, u64)>,
    /// By the kind of failure, what is known of the first beside its kind: the words of the server, the system or TLS. Without a password.
    pub words: [Option<String>; Failure::ALL.len()],
    /// How many files may be open: each connection is one.
    pub files: Files,
    /// Why it is not to be trusted; nothing, if it is.
    pub doubts: Vec<Doubt>,
}

/// Files that this process may have open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// As many as the run needs at the most: its connections and some more.
    pub needed: u64,
    /// As many as may be open, of which the run has asked for as many as it needs; nothing, if there is no limit.
    pub limit: Option<u64>,
    /// As many as a process without privileges may ask for; nothing, if there is no limit.
    pub limit_max: Option<u64>,
}

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name is not known.
    #[error("{host}: no address is known for it: {error}")]
    Unknown {
        /// Which.
        host: String,
        /// Why.
        error: String,
    },
    /// TLS cannot be used as it is set.
    #[error(transparent)]
    Tls(#[from] net::tls::TlsError),
    /// The name cannot be one in a certificate.
    #[error("{host} cannot be asked for in TLS: {why}")]
    Name {
        /// Which.
        host: String,
        /// Why.
        why: String,
    },
    /// This machine did not give what a worker needs.
    #[error("starting a worker: {0}")]
    Worker(#[from] std::io::Error),
    /// Too few files may be open.
    #[error(
        "{wanted} files must be open for so many connections or processes, and {allowed} are allowed: ask for fewer, or raise the limit with ulimit -n"
    )]
    Files {
        /// Those of connections or processes, and what else is open.
        wanted: usize,
        /// The limit of this process.
        allowed: u64,
    },
    /// A program that cannot be started.
    #[error("the command {name:?} cannot be started: {why}")]
    Program {
        /// As it was written.
        name: String,
        /// Why not, and what to do.
        why: String,
    },
    /// Where requests are commands, one is none.
    #[error(
        "request {name:?} has no command, and no target says where it goes: write command = [\"program\", \"argument\"], or a target"
    )]
    NoCommand {
        /// Whose.
        name: String,
    },
    /// Where requests go to a server, one is a command.
    #[error(
        "request {name:?} has a command, and a target says where requests go: leave out one of both"
    )]
    Command {
        /// Whose.
        name: String,
    },
    /// The kernel does not tell when a process ends.
    #[error("commands need pidfd_open(2), of Linux 5.3 or later: {0}")]
    Pidfd(std::io::Error),
    /// A number that makes no sense.
    #[error("{0}")]
    Settings(String),
}

/// How long is waited for connections before a run begins.
const WARM_NS: u64 = 2_000_000_000;
/// From when workers are told until they begin, all at the same moment.
const LEAD_NS: u64 = 20_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Of each process: whether it ended, and what it says.
const FILES_OF_PROCESS: usize = 2;
/// Files that are open beside connections or processes.
const FILES_ELSE: usize = 64;

/// Who is told of a run while it goes on.
pub trait Observer {
    /// It begins at this moment of the clock, which is some milliseconds ahead; and as nanoseconds since 1970, as in [`Run`].
    fn began(&mut self, _start_ns: u64, _began_unix_ns: i64) {}

    /// A second is over, so many nanoseconds after the start: what has ended in it. Seconds come in order, each when all threads have told
    /// theirs. The last one ends with the run.
    fn second(&mut self, _end_ns: u64, _tally: &Tally) {}
}

/// Nobody.
impl Observer for () {}

impl Settings {
    /// Whether it can be run, as far as that is known without asking a server: a program that is missing is told.
    pub fn check(&self) -> Result<(), Error> {
        self.check_connections()?;
        programs(self).map(|_| ())
    }

    /// Each thread has a connection, at least.
    fn check_connections(&self) -> Result<(), Error> {
        let (most, threads) = (self.connections_max, self.threads);
        if most >= threads.max(1) {
            return Ok(());
        }
        let is_command = self.target.protocol == Protocol::Command;
        let what = if is_command { "processes" } else { "connections" };
        let said = format!("{most} {what} are too few for {threads} threads: each has its own");
        Err(Error::Settings(said))
    }
}

/// Runs it. When `stop` is set, nothing more is sent.
pub fn run(
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    observer: &mut dyn Observer,
) -> Result<Run, Error> {
    settings.check_connections()?;
    let programs = programs(settings)?;
    let dial = dial(settings)?;
    let is_command = dial.protocol == Protocol::Command;
    let threads = settings.threads.max(1);
    let files_of_each = if is_command { FILES_OF_PROCESS } else { 1 };
    let files = raise_files(settings.connections_max * files_of_each + FILES_ELSE)?;
    let share_of = |all: usize, number: usize| all / threads + usize::from(number < all % threads);
    let mut seeds = seeds(settings.seed);
    let mut workers = Vec::new();
    for number in 0..threads {
        workers.push(Worker::new(Share {
            dial: dial.clone(),
            programs: programs.clone(),
            number,
            threads,
            due: Box::new(settings.schedule.arrivals().skip(number).step_by(threads)),
            requests: settings.requests.clone(),
            seed: seeds.next(),
            connections: if is_command { 0 } else { share_of(settings.connections, number) },
            connections_max: share_of(settings.connections_max, number),
            timeout_ns: settings.timeout_ns,
            length_ns: settings.schedule.length_ns(),
            drain_ns: settings.drain_ns,
            has_processor: threads < settings.processors,
            stop: stop.clone(),
            give_up: settings.give_up.clone(),
        })?);
    }
    let (tell, told) = mpsc::channel();
    let mut crew = Vec::new();
    for mut worker in workers {
        let (is_ready, ready) = mpsc::channel();
        let (start, started) = mpsc::channel();
        let tell = tell.clone();
        // If one cannot be started, or panics, the others learn that there will be no start, and end.
        let handle = thread::Builder::new().spawn(move || {
            worker.warm(WARM_NS);
            let _ = is_ready.send(());
            if let Ok(start_ns) = started.recv() {
                worker.run(start_ns, &tell);
            }
        })?;
        crew.push((ready, start, handle));
    }
    drop(tell);
    let are_ready = crew.iter().all(|(ready, ..)| ready.recv().is_ok());
    let start_ns = clock::now() + LEAD_NS;
    let began_unix_ns = clock::wall().unix_ns + (start_ns as i64 - clock::now() as i64);
    let mut handles = Vec::new();
    for (_, start, handle) in crew {
        if are_ready {
            let _ = start.send(start_ns);
        }
        handles.push(handle);
    }
    if are_ready {
        observer.began(start_ns, began_unix_ns);
    }
    let mut run = Run {
        tally: Tally::default(),
        by_second: BTreeMap::new(),
        by_request: settings
            .requests
            .names()
            .map(|name| (name.to_owned(), Histogram::default()))
            .collect(),
        began_unix_ns,
        length_ns: 0,
        is_interrupted: false,
        stalls: Vec::new(),
        words: Default::default(),
        files,
        doubts: Vec::new(),
    };
    let mut words = Words::default();
    let mut seconds = Seconds { workers: threads, open: BTreeMap::new() };
    for one in told {
        match one {
            Told::Second(end_ns, tally) => {
                run.length_ns = run.length_ns.max(end_ns);
                seconds.told(end_ns, &tally);
            }
            Told::End(end) => {
                run.length_ns = run.length_ns.max(end.length_ns);
                seconds.ended(end.length_ns, &end.tally);
                for (second, histogram) in end.by_second {
                    merge(run.by_second.entry(second).or_default(), &histogram);
                }
                for ((_, mine), theirs) in run.by_request.iter_mut().zip(&end.by_request) {
                    merge(mine, theirs);
                }
                run.stalls.extend(end.stalls);
                run.is_interrupted |= end.is_interrupted;
                words.merge(end.words);
            }
        }
        while let Some((end_ns, tally)) = seconds.next() {
            run.tally.merge(&tally);
            observer.second(end_ns.min(run.length_ns), &tally);
        }
    }
    for handle in handles {
        if let Err(panic) = handle.join() {
            std::panic::resume_unwind(panic);
        }
    }
    run.stalls = joined(std::mem::take(&mut run.stalls));
    run.words = words.finish(settings.target.protocol.secret());
    run.doubts = doubt::doubts(&run, threads);
    Ok(run)
}

/// What each worker begins to draw requests from. The schedule draws from the seed itself; by the same numbers, the gap before a request
/// would decide which one it is.
fn seeds(seed: u64) -> Random {
    const REQUESTS: u64 = 0x6c6f_6164_2072_6571;
    Random::new(seed ^ REQUESTS)
}

/// Seconds of which not all workers have told their part, by their ends.
struct Seconds {
    /// Those that have not ended.
    workers: usize,
    /// How many told of it, and what.
    open: BTreeMap<u64, (usize, Tally)>,
}

impl Seconds {
    /// A worker tells of its second that ended then.
    fn told(&mut self, end_ns: u64, tally: &Tally) {
        self.add(end_ns, tally).0 += 1;
    }

    /// A worker has ended, after all seconds that ended by then. It is not waited for any more.
    fn ended(&mut self, length_ns: u64, rest: &Tally) {
        self.workers -= 1;
        let end_ns = (length_ns / SECOND_NS + 1).saturating_mul(SECOND_NS);
        self.add(end_ns, rest);
    }

    fn add(&mut self, end_ns: u64, part: &Tally) -> &mut (usize, Tally) {
        let open = self.open.entry(end_ns).or_default();
        open.1.merge_beside(part);
        open
    }

    /// The next that is whole.
    fn next(&mut self) -> Option<(u64, Tally)> {
        let first = self.open.first_entry().filter(|one| one.get().0 >= self.workers)?;
        let (end_ns, (_, tally)) = first.remove_entry();
        Some((end_ns, tally))
    }
}

/// Pieces of time in order, those that touch each other as one: threads that stand still together are one stall.
fn joined(mut pieces: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    pieces.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in pieces {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

fn merge(into: &mut Histogram, other: &Histogram) {
    into.merge(other).expect("BUG: recorders of one scheme");
}

/// Where the programs of commands are; of a server there are none.
fn programs(settings: &Settings) -> Result<Arc<[Option<PathBuf>]>, Error> {
    let requests = &settings.requests;
    if settings.target.protocol == Protocol::Command {
        return Ok(process::programs(requests)?.into());
    }
    match requests.all().iter().find(|request| !request.command.is_empty()) {
        Some(request) => Err(Error::Command { name: request.name.clone() }),
        None => Ok(Arc::default()),
    }
}

fn dial(settings: &Settings) -> Result<Dial, Error> {
    if settings.target.protocol == Protocol::Command {
        return Ok(Dial { protocol: Protocol::Command, addresses: Vec::new(), tls: None });
    }
    let (host, port) = (&settings.target.host, settings.target.port);
    let unknown = |error: String| Error::Unknown { host: host.clone(), error };
    let found =
        (host.as_str(), port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    let addresses: Vec<SocketAddr> = found.collect();
    // As other clients do: the first family that the system prefers.
    let first = addresses.first().ok_or_else(|| unknown("its list is empty".to_owned()))?.is_ipv4();
    let addresses = addresses.into_iter().filter(|one| one.is_ipv4() == first).collect();
    let tls = match settings.target.is_tls {
        false => None,
        true => {
            let mut config = match settings.target.is_verified {
                true => settings.tls.config()?,
                false if settings.tls.ca.is_some() => {
                    let said = "the server's certificate is not verified with sslmode=require, so that an authority for it means \
                                nothing: write sslmode=verify-full";
                    return Err(Error::Settings(said.to_owned()));
                }
                false => settings.tls.unverified_config()?,
            };
            config.alpn_protocols = settings.target.protocol.alpn();
            let name = ServerName::try_from(host.clone());
            let name =
                name.map_err(|error| Error::Name { host: host.clone(), why: error.to_string() })?;
            Some((Arc::new(config), name))
        }
    };
    Ok(Dial { protocol: settings.target.protocol.clone(), addresses, tls })
}

/// Asks for as many open files as are needed.
fn raise_files(wanted: usize) -> Result<Files, Error> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let wanted_files = wanted as u64;
    let limit_max = limit.maximum;
    if limit.current.is_none_or(|current| current >= wanted_files) {
        return Ok(Files { needed: wanted_files, limit: limit.current, limit_max });
    }
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    limit.current = Some(wanted_files.min(allowed));
    let raised = setrlimit(Resource::Nofile, limit);
    if allowed < wanted_files || raised.is_err() {
        return Err(Error::Files { wanted, allowed });
    }
    Ok(Files { needed: wanted_files, limit: Some(wanted_files), limit_max })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the same numbers for both, the rarer kind would come after the longest gaps.
    #[test]
    fn which_request_is_sent_has_nothing_to_do_with_when() {
        let text = "[[request]]\npath = '/rare'\n[[request]]\nweight = 9\npath = '/often'\n";
        let requests = Requests::parse(text, std::path::Path::new("")).unwrap();
        for seed in [1, 7, 1_000_000] {
            let spacing = crate::schedule::Spacing::Poisson { seed };
            let arrivals = Schedule::constant(1_000.0, 100 * SECOND_NS, spacing).arrivals();
            let mut random = Random::new(seeds(seed).next());
            let (mut before, mut gaps) = (0, [(0, 0); 2]);
            for due in arrivals {
                let (sum, count) = &mut gaps[requests.draw(&mut random).index];
                (*sum, *count) = (*sum + due - before, *count + 1);
                before = due;
            }
            let [rare, often] = gaps.map(|(sum, count)| sum as f64 / f64::from(count));
            // Of 10,000 gaps the mean is known to 1 %.
            assert!((rare / often - 1.0).abs() < 0.05, "{rare} ns before the rare, {often} ns");
            assert!((9_000..11_000).contains(&gaps[0].1), "{gaps:?}");
        }
    }

    /// Ends of seconds, and how many were intended in each.
    fn whole(seconds: &mut Seconds) -> Vec<(u64, u64)> {
        let all = std::iter::from_fn(|| seconds.next());
        let all = all.inspect(|(_, tally)| assert_eq!(tally.in_flight_max, tally.intended));
        all.map(|(end_ns, tally)| (end_ns / SECOND_NS, tally.intended)).collect()
    }

    #[test]
    fn who_has_ended_is_not_waited_for() {
        let of = |intended| Tally { intended, in_flight_max: intended, ..Tally::default() };
        let mut seconds = Seconds { workers: 2, open: BTreeMap::new() };
        seconds.told(SECOND_NS, &of(1));
        seconds.told(2 * SECOND_NS, &of(2));
        assert_eq!(whole(&mut seconds), []);
        seconds.told(SECOND_NS, &of(10));
        assert_eq!(whole(&mut seconds), [(1, 11)]);
        // In the middle of the second that the other has told of already.
        seconds.ended(SECOND_NS * 3 / 2, &of(20));
        assert_eq!(whole(&mut seconds), [(2, 22)]);
        // All that comes is the other's.
        seconds.told(3 * SECOND_NS, &of(3));
        assert_eq!(whole(&mut seconds), [(3, 3)]);
        seconds.ended(3 * SECOND_NS, &of(4));
        assert_eq!(whole(&mut seconds), [(4, 4)]);
        assert!(seconds.open.is_empty());
    }

    #[test]
    fn threads_that_stand_still_together_are_one_stall() {
        let pieces = vec![(30, 40), (0, 10), (5, 7), (8, 20), (41, 42)];
        assert_eq!(joined(pieces), [(0, 20), (30, 40), (41, 42)]);
        assert_eq!(joined(Vec::new()), []);
    }
}
