//! A run: workers that share a schedule, what they told, and whether it can be trusted.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;

use hist::Histogram;
use rustls_pki_types::ServerName;

use crate::connection::Dial;
use crate::request::Requests;
use crate::schedule::{Random, Schedule};
use crate::tally::Tally;
use crate::target::Target;
use crate::verdict::{self, Doubt};
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
    /// Connections that there are when the run begins.
    pub connections: usize,
    /// Connections that there are at the most. What finds none waits, and its response time goes on.
    pub connections_max: usize,
    /// So long after it was due a request has failed. Nanoseconds.
    pub timeout_ns: u64,
    /// How long answers are waited for after the last request was due. Nanoseconds.
    pub drain_ns: u64,
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
    /// Why it is not to be trusted; nothing, if it is.
    pub doubts: Vec<Doubt>,
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
        "{wanted} connections need as many open files, and {allowed} are allowed: ask for fewer, or raise the limit with ulimit -n"
    )]
    Files {
        /// Connections and what else is open.
        wanted: usize,
        /// The limit of this process.
        allowed: u64,
    },
    /// A number that makes no sense.
    #[error("{0}")]
    Settings(String),
}

/// How long is waited for connections before a run begins.
const WARM_NS: u64 = 2_000_000_000;
/// From when workers are told until they begin, all at the same moment.
const LEAD_NS: u64 = 20_000_000;
/// Files that are open beside connections.
const FILES_ELSE: usize = 64;

/// Who is told of a run while it goes on.
pub trait Observer {
    /// It begins at this moment of the clock, which is some milliseconds ahead; and as nanoseconds since 1970, as in [`Run`].
    fn began(&mut self, _start_ns: u64, _began_unix_ns: i64) {}

    /// A second is over, so many nanoseconds after the start: what has ended in it. Seconds come in order, each when all threads have told
    /// theirs; a thread that stood still tells of several at once, and they all at the first of them. The last one ends with the run.
    fn second(&mut self, _end_ns: u64, _tally: &Tally) {}
}

/// Nobody.
impl Observer for () {}

/// Runs it. When `stop` is set, nothing more is sent.
pub fn run(
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    observer: &mut dyn Observer,
) -> Result<Run, Error> {
    let dial = dial(settings)?;
    let threads = settings.threads.max(1);
    // Each worker has a connection, at least.
    if settings.connections_max < threads {
        let (connections, wanted) = (settings.connections_max, threads);
        let said =
            format!("{connections} connections are too few for {wanted} threads: each has its own");
        return Err(Error::Settings(said));
    }
    raise_files(settings.connections_max + FILES_ELSE)?;
    let share_of = |all: usize, number: usize| all / threads + usize::from(number < all % threads);
    let mut seeds = seeds(settings.seed);
    let mut workers = Vec::new();
    for number in 0..threads {
        workers.push(Worker::new(Share {
            dial: dial.clone(),
            due: Box::new(settings.schedule.arrivals().skip(number).step_by(threads)),
            requests: settings.requests.clone(),
            seed: seeds.next(),
            connections: share_of(settings.connections, number),
            connections_max: share_of(settings.connections_max, number),
            timeout_ns: settings.timeout_ns,
            length_ns: settings.schedule.length_ns(),
            drain_ns: settings.drain_ns,
            stop: stop.clone(),
        })?);
    }
    let (tell, told) = mpsc::channel();
    let mut crew = Vec::new();
    for (number, mut worker) in workers.into_iter().enumerate() {
        let (is_ready, ready) = mpsc::channel();
        let (start, started) = mpsc::channel();
        let tell = tell.clone();
        // If one cannot be started, or panics, the others learn that there will be no start, and end.
        let handle = thread::Builder::new().spawn(move || {
            worker.warm(WARM_NS);
            let _ = is_ready.send(());
            if let Ok(start_ns) = started.recv() {
                worker.run(start_ns, number, &tell);
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
        doubts: Vec::new(),
    };
    let mut seconds = Seconds::new(threads);
    for (number, one) in told {
        match one {
            Told::Second(end_ns, tally) => {
                run.tally.merge(&tally);
                seconds.tell(number, end_ns, &tally);
            }
            Told::End(end) => {
                seconds.end(number);
                for (second, histogram) in end.by_second {
                    merge(run.by_second.entry(second).or_default(), &histogram);
                }
                for ((_, mine), theirs) in run.by_request.iter_mut().zip(&end.by_request) {
                    merge(mine, theirs);
                }
                run.stalls.extend(end.stalls);
                run.is_interrupted |= end.is_interrupted;
            }
        }
        while let Some((end_ns, tally)) = seconds.next() {
            observer.second(end_ns, &tally);
        }
    }
    run.length_ns = seconds.length_ns;
    for handle in handles {
        if let Err(panic) = handle.join() {
            std::panic::resume_unwind(panic);
        }
    }
    run.stalls = joined(std::mem::take(&mut run.stalls));
    run.doubts = verdict::doubts(&run, threads);
    Ok(run)
}

/// What each worker begins to draw requests from. The schedule draws from the seed itself; by the same numbers, the gap before a request
/// would decide which one it is.
fn seeds(seed: u64) -> Random {
    const REQUESTS: u64 = 0x6c6f_6164_2072_6571;
    Random::new(seed ^ REQUESTS)
}

/// Seconds of several workers on their way to be one.
struct Seconds {
    /// How far each has told; to the end of time when it has told all.
    told_ns: Vec<u64>,
    /// By the number of the second, from 1, so that what a worker tells at its end counts to the second that it ends in.
    kept: BTreeMap<u64, Tally>,
    /// The last moment that was told of.
    length_ns: u64,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Seconds {
    fn new(threads: usize) -> Seconds {
        Seconds { told_ns: vec![0; threads], kept: BTreeMap::new(), length_ns: 0 }
    }

    fn tell(&mut self, worker: usize, end_ns: u64, tally: &Tally) {
        self.told_ns[worker] = end_ns;
        self.length_ns = self.length_ns.max(end_ns);
        self.kept.entry(end_ns.div_ceil(SECOND_NS)).or_default().merge(tally);
    }

    fn end(&mut self, worker: usize) {
        self.told_ns[worker] = u64::MAX;
    }

    /// The first second that all have told of, and its end.
    fn next(&mut self) -> Option<(u64, Tally)> {
        let least_ns = self.told_ns.iter().copied().min().unwrap_or(u64::MAX);
        let first = self.kept.first_entry()?;
        let end_ns = first.key() * SECOND_NS;
        // What ends within a second is known in full only when all have ended.
        (end_ns <= least_ns).then(|| (end_ns.min(self.length_ns), first.remove()))
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

fn dial(settings: &Settings) -> Result<Dial, Error> {
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
            let mut config = settings.tls.config()?;
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
fn raise_files(wanted: usize) -> Result<(), Error> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let wanted_files = wanted as u64;
    if limit.current.is_none_or(|current| current >= wanted_files) {
        return Ok(());
    }
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    limit.current = Some(wanted_files.min(allowed));
    let raised = setrlimit(Resource::Nofile, limit);
    if allowed < wanted_files || raised.is_err() {
        return Err(Error::Files { wanted, allowed });
    }
    Ok(())
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

    #[test]
    fn seconds_are_told_when_all_threads_have_told_them() {
        let of = |intended| Tally { intended, ..Tally::default() };
        let mut seconds = Seconds::new(3);
        let mut told = |worker, ms: u64, intended| {
            match intended {
                0 => seconds.end(worker),
                _ => seconds.tell(worker, ms * 1_000_000, &of(intended)),
            }
            let all = std::iter::from_fn(|| seconds.next());
            all.map(|(end_ns, tally)| (end_ns / 1_000_000, tally.intended)).collect::<Vec<_>>()
        };
        assert_eq!(told(0, 1_000, 1), []);
        assert_eq!(told(1, 1_000, 1), []);
        assert_eq!(told(2, 1_000, 1), [(1_000, 3)]);
        // The first ends within a second, the second stands still for two.
        assert_eq!(told(0, 1_300, 2), []);
        assert_eq!(told(0, 0, 0), []);
        assert_eq!(told(2, 2_000, 4), []);
        assert_eq!(told(1, 2_000, 8), [(2_000, 14)]);
        assert_eq!(told(2, 3_000, 16), []);
        assert_eq!(told(2, 4_000, 32), []);
        assert_eq!(told(1, 5_000, 64), [(3_000, 16), (4_000, 32)]);
        assert_eq!(told(2, 5_000, 128), [(5_000, 192)]);
        // Those that end in the same second are one, which ends with the last.
        assert_eq!(told(1, 5_100, 1), []);
        assert_eq!(told(1, 0, 0), []);
        assert_eq!(told(2, 5_700, 2), []);
        assert_eq!(told(2, 0, 0), [(5_700, 3)]);
    }

    #[test]
    fn threads_that_stand_still_together_are_one_stall() {
        let pieces = vec![(30, 40), (0, 10), (5, 7), (8, 20), (41, 42)];
        assert_eq!(joined(pieces), [(0, 20), (30, 40), (41, 42)]);
        assert_eq!(joined(Vec::new()), []);
    }
}
