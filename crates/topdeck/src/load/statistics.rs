//! The statistics of a run, as text and page tell them.

use collect::Unit;
use hist::{Bracket, Histogram};
use load::{Failure, Run, Tally, per_second};

use crate::hist::show::{self, Show, count};
use crate::load::plan::Plan;
use crate::query::numbers::{Doubt, Numbers};

/// Percentiles that are told, with the maximum and the mean after them.
pub(crate) const SHARES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// How times are written.
pub(crate) fn show() -> Show {
    Show::new(Some(&Unit::Nanoseconds))
}

pub(crate) fn numbers() -> Numbers {
    Numbers::new(Some("ns"))
}

/// What is measured of each request, and what it is.
pub(crate) fn times(tally: &Tally) -> [(&'static str, &Histogram, &'static str); 5] {
    [
        ("response", &tally.response, "from when a request was due to its answer"),
        ("service", &tally.service, "from when it was sent to its answer"),
        ("send lag", &tally.send_lag, "from when it was due until it was sent"),
        ("own lag", &tally.own_lag, "from when it was due until the generator noticed"),
        ("failure", &tally.failure, "from when it was due to its failure"),
    ]
}

/// A table: a name for each column, and rows.
pub(crate) struct Grid {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// What is to be said below it.
    pub(crate) note: Option<String>,
}

/// The value of a share, in which 1 is the maximum.
pub(crate) fn at(of: &Histogram, share: f64) -> Option<Bracket> {
    if share >= 1.0 { of.max() } else { of.quantile(share) }
}

pub(crate) fn share_name(share: f64) -> String {
    if share >= 1.0 { "max".to_owned() } else { show::quantile_name(share) }
}

/// Percentiles of all times side by side. The time until failures is there if there are any.
pub(crate) fn percentiles(tally: &Tally) -> Grid {
    let [measured @ .., failure] = times(tally);
    let times = measured.into_iter().chain((failure.1.count() > 0).then_some(failure));
    let times: Vec<_> = times.collect();
    let (numbers, mut doubt) = (numbers(), Doubt::default());
    let mut value = |of: Option<Bracket>| {
        of.map_or("-".to_owned(), |bracket| {
            doubt.add(bracket);
            numbers.marked(bracket)
        })
    };
    let mut rows = Vec::new();
    for share in SHARES {
        let cells = times.iter().map(|(_, of, _)| value(at(of, share)));
        rows.push([share_name(share)].into_iter().chain(cells).collect());
    }
    let cells = times.iter().map(|(_, of, _)| value(of.mean()));
    rows.push(["mean".to_owned()].into_iter().chain(cells).collect());
    let cells = times.iter().map(|(_, of, _)| count(of.count()));
    rows.push(["count".to_owned()].into_iter().chain(cells).collect());
    let names = times.iter().map(|time| time.0.to_owned());
    let head = [String::new()].into_iter().chain(names).collect();
    Grid { head, rows, note: doubt.text("the JSON") }
}

/// Response times of each kind of request.
pub(crate) fn by_request(run: &Run) -> Grid {
    let shares = [0.5, 0.99, 0.999, 1.0];
    let numbers = numbers();
    let rows = run.by_request.iter().map(|(name, of)| {
        let value = |share: f64| at(of, share).map_or("-".to_owned(), |b| numbers.marked(b));
        let values = shares.into_iter().map(value);
        [name.clone(), count(of.count())].into_iter().chain(values).collect()
    });
    let names = ["response", "count"].map(str::to_owned).into_iter();
    let head = names.chain(shares.into_iter().map(share_name)).collect();
    Grid { head, rows: rows.collect(), note: None }
}

/// What became of all requests that were due: name, how many, share, and what it means.
pub(crate) fn account(tally: &Tally) -> Vec<[String; 4]> {
    let row = |name: &str, n: u64, about: &str| {
        [name.to_owned(), count(n), show::share(n, tally.intended), about.to_owned()]
    };
    let mut rows = vec![
        row("intended", tally.intended, "requests that were due"),
        row("completed", tally.completed, "answered"),
        row("failed", tally.failures(), "no answer, or an error; not among the times"),
    ];
    for failure in Failure::ALL.iter().filter(|one| tally.failed[**one as usize] > 0) {
        rows.push(row(&format!("  {failure}"), tally.failed[*failure as usize], ""));
    }
    rows.push(row("unfinished", tally.unfinished, "no answer at the end; their age counts"));
    if tally.missed + tally.seen_late > 0 {
        rows.push(row("missed", tally.missed, "not sent, for the generator stood still"));
        rows.push(row("seen late", tally.seen_late, "answered while the generator stood still"));
    }
    rows
}

/// What is known of the first failure of each kind of which there were any.
pub(crate) fn first_failures(run: &Run) -> Vec<(Failure, &str)> {
    let all = Failure::ALL.into_iter().zip(&run.words);
    let known = all.filter(|(failure, _)| run.tally.failed[*failure as usize] > 0);
    known.filter_map(|(failure, words)| Some((failure, words.as_deref()?))).collect()
}

fn limit(of: Option<u64>) -> String {
    of.map_or_else(|| "any number".to_owned(), count)
}

/// The rest that is known of a run: name and words.
pub(crate) fn facts(run: &Run, plan: &Plan) -> Vec<(&'static str, String)> {
    let tally = &run.tally;
    let seconds = run.length_ns.max(1) as f64 * 1e-9;
    let threads_ns = run.length_ns.max(1) as f64 * plan.settings.threads as f64;
    let busy = tally.cpu_ns as f64 / threads_ns * 100.0;
    let (opened, many, place) = match plan.is_command() {
        true => ("processes", "started", "process to end"),
        false => ("connections", "opened", "connection"),
    };
    let requests = |n: u64| {
        let many = if n == 1 { "request" } else { "requests" };
        format!("{} {many}", count(n))
    };
    vec![
        ("rate", format!("{} answered", per_second(tally.completed as f64 / seconds))),
        ("in flight", format!("{} at the most; there is no limit", requests(tally.in_flight_max))),
        (
            opened,
            format!(
                "{} {many}, {} at once, and {} are allowed",
                count(tally.opened),
                count(tally.connected_max),
                count(plan.settings.connections_max as u64)
            ),
        ),
        (
            "open files",
            format!(
                "{} needed at the most, {} allowed, {} if asked for",
                count(run.files.needed),
                limit(run.files.limit),
                limit(run.files.limit_max)
            ),
        ),
        (
            "waited",
            format!(
                "{} for a {place}, because there were as many as allowed",
                requests(tally.waited)
            ),
        ),
        ("generator", format!("{busy:.1} % of the time at work")),
    ]
}
