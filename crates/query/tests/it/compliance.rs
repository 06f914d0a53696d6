//! Questions over a range to Prometheus itself and to a store of ours with the same data; their answers are compared.
//!
//! `make system PART=prometheus` runs it. `TOPDECK_PROMETHEUS` names the program; `TOPDECK_COMPLIANCE_QUERIES` may name a file of
//! Prometheus' compliance tests, whose questions are then asked beside ours.

mod data;
mod prometheus;
mod questions;
mod reply;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use disk::{Disk, SimDisk};
use journal::{Identity, Level};
use model::{BatchWriter, Sample, Value};
use query::{Language, Question, Settings, Stored, ask, promql};
use store::{Options, Store, View};

use self::data::{ASKED_MS, END_MS, Line, Point};
use self::prometheus::Prometheus;
use self::questions::Asked;
use self::reply::Reply;

const MILLI: i64 = 1_000_000;
/// Where the store is on its disk.
const DIR: &str = "/store";

#[test]
#[ignore = "needs TOPDECK_PROMETHEUS, a program"]
fn prometheus_answers_alike() {
    let program = std::env::var("TOPDECK_PROMETHEUS").expect("TOPDECK_PROMETHEUS names a program");
    let lines = data::lines();
    let store = stored(&lines);
    let view = store.view().expect("a store can be read");
    let prometheus = Prometheus::start(Path::new(&program));
    prometheus.load(&lines);
    let list = crate::data("compared.txt");
    let own = questions::read(&fs::read_to_string(list).expect("our list can be read"));
    let ours = compare("compared", &own, &prometheus, &view);
    let mut wrong = ours.wrong;
    if let Ok(path) = std::env::var("TOPDECK_COMPLIANCE_QUERIES") {
        let file = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let theirs = questions::read_compliance(&file);
        wrong += compare("compliance", &theirs, &prometheus, &view).wrong;
    }
    assert_eq!(wrong, 0, "answers differ");
    crate::at_least("compared", ours.alike);
}

/// What became of a list.
#[derive(Default)]
struct Outcome {
    alike: usize,
    /// Differ, as is known.
    known: usize,
    /// Differ, or are alike where they are known to differ.
    wrong: usize,
    /// Those that both refuse.
    refused: usize,
    /// Those of which nothing is the answer.
    empty: usize,
}

/// Asks all, and shows what is not as it is to be.
fn compare(name: &str, asked: &[Asked], prometheus: &Prometheus, view: &View) -> Outcome {
    let mut outcome = Outcome::default();
    for Asked { text, differs } in asked {
        let replies = ASKED_MS.map(|range| prometheus.ask(text, range));
        let replies = replies.map(|body| Reply::of_json(&body));
        outcome.refused += usize::from(replies.iter().all(Reply::is_failed));
        outcome.empty += usize::from(replies.iter().all(Reply::is_empty));
        let mut differences = replies.iter().zip(ASKED_MS).filter_map(|(reply, range)| {
            let found = catch_unwind(AssertUnwindSafe(|| Reply::of(own(view, text, range))));
            found.map_or_else(|_| Some("it panics".to_owned()), |found| reply.difference(&found))
        });
        match (differences.next(), differs) {
            (None, false) => outcome.alike += 1,
            (Some(_), true) => outcome.known += 1,
            (Some(difference), false) => {
                outcome.wrong += 1;
                println!("{text}\n    {}\n", difference.trim_start());
            }
            (None, true) => {
                outcome.wrong += 1;
                println!("{text}\n    is answered alike, and known to differ\n");
            }
        }
    }
    let Outcome { alike, known, wrong, refused, empty } = &outcome;
    let count = asked.len();
    println!(
        "{name:<12}{alike:>5} of {count} alike ({refused} refused, {empty} empty), {known} known to differ, {wrong} wrong"
    );
    outcome
}

fn own(
    view: &View,
    text: &str,
    (start, end, step): (i64, i64, i64),
) -> query::Result<query::Answer> {
    let options = promql::Options { standard_only: true, ..promql::Options::all() };
    let (start, end, step) = (start * MILLI, end * MILLI, step * MILLI);
    let question = Question { text, language: Language::PromQl, start, end, step, options };
    ask(&Stored::new(view), &question, &Settings::default(), &|| false)
}

/// A store with all lines, half of it in parts and half in memory.
fn stored(lines: &[Line]) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
    Store::create(&disk, Path::new(DIR), &journal::Settings::default())
        .expect("a store can be made");
    let clock = Arc::new(|| END_MS * MILLI);
    let options = Options { background: false, clock, ..Options::default() };
    let store = Store::open(disk, Path::new(DIR), &options).expect("a store can be opened");
    let middle = (data::START_MS + END_MS) / 2;
    for (half, times) in [i64::MIN..middle, middle..i64::MAX].into_iter().enumerate() {
        for (part, lines) in lines.chunks(20).enumerate() {
            let mut batch = BatchWriter::default();
            for line in lines {
                batch.series(&line.series);
                for (time_ms, point) in line.points.iter().filter(|point| times.contains(&point.0))
                {
                    let at = time_ms * MILLI;
                    let value = match point {
                        Point::Number(number) => Value::Number(*number),
                        Point::Histogram(histogram) => Value::Histogram(histogram.clone()),
                    };
                    let sample = Sample { start: at, end: at, value };
                    batch.sample(&sample).expect("a sample is as it should be");
                }
            }
            let sequence = (half * 1_000 + part + 1) as u64;
            let identity = Identity { producer: 1, boot: 1, sequence };
            let taken = store.ingest(Some(identity), &batch.finish(), Level::Process);
            let _acknowledged = taken.expect("a batch is taken");
        }
        store.catch_up().expect("a store takes what is in its journal");
        if half == 0 {
            store.seal().expect("rows can be sealed");
        }
    }
    store
}
