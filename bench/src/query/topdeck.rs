//! Questions to topdeck, in this process: from the text to the answer in memory.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use collect::synthetic::{Dataset, Truth};
use disk::{Disk, OsDisk};
use query::{Data, Language, Settings, Stored, Stream, Value};
use store::{Options, Store};

use super::accuracy::Found;
use super::asked::Asked;
use super::contender::{self, Answer, Contender};
use super::question::{Dialect, Question, over};
use crate::store::topdeck::{ask, memory_bytes};
use crate::store::{Query, Work};

struct Own<'a> {
    store: &'a Store,
    work: &'a Work,
    dialect: Dialect,
}

/// The languages, in the order of what [`contenders`] gives.
const DIALECTS: [(Dialect, &str); 2] =
    [(Dialect::PromQl, "topdeck, PromQL"), (Dialect::Caql, "topdeck, CAQL")];

/// Nothing asked yet.
pub(crate) fn contenders() -> Vec<Asked> {
    DIALECTS.map(|(_, name)| Asked::new(name)).into()
}

/// Of what [`contenders`] gave, whether it is one.
pub(super) fn is_own(asked: &Asked) -> bool {
    DIALECTS.iter().any(|(_, name)| *name == asked.name)
}

impl Contender for Own<'_> {
    fn dialect(&self) -> Dialect {
        self.dialect
    }

    fn ask(&mut self, key: &'static str, question: &Question) -> Result<(Query, Answer)> {
        let (query, answer) = ask(self.work, key, || answer(self.store, self.dialect, question))?;
        let streams = match &answer.data {
            Data::Matrix(streams) | Data::Vector(streams) => &streams[..],
            _ => &[],
        };
        let numbers = streams.iter().map(|stream| each(stream, found)).collect();
        let counts = streams.iter().flat_map(|stream| each(stream, count));
        Ok((query, Answer { numbers, count: counts.flatten().sum() }))
    }
}

fn answer(store: &Store, dialect: Dialect, question: &Question) -> Result<query::Answer> {
    let Question { text, start_ns, end_ns, step_ns } = question;
    // A window of PromQL's ends at its step, one of CAQL's begins there.
    let (language, start) = match dialect {
        Dialect::Caql => (Language::Caql, *start_ns),
        _ => (Language::PromQl, start_ns + step_ns),
    };
    let question = query::Question {
        text,
        language,
        start,
        end: *end_ns,
        step: *step_ns,
        options: query::promql::Options::all(),
    };
    let view = store.view()?;
    let answer = query::ask(&Stored::new(&view), &question, &Settings::default(), &|| false);
    answer.with_context(|| format!("asking {text}"))
}

fn each<T>(stream: &Stream, of: fn(&Value) -> Option<T>) -> Vec<Option<T>> {
    stream.points.iter().map(|point| point.as_ref().and_then(of)).collect()
}

fn found(value: &Value) -> Option<Found> {
    let bracket = value.bracket()?;
    let bounds = Some((bracket.lower, bracket.upper));
    Some(Found { estimate: bracket.estimate, bounds })
}

fn count(value: &Value) -> Option<f64> {
    match value {
        Value::Distribution(mixture) => Some(mixture.count() as f64),
        Value::Histogram(histogram) => Some(histogram.count),
        Value::Number(_) | Value::Bracket(_) => None,
    }
}

fn with_each(
    work: &Work,
    store: &Store,
    all: &mut [Asked],
    mut questions: impl FnMut(&mut Own<'_>, bool, &mut Asked) -> Result<()>,
) -> Result<()> {
    for ((dialect, _), asked) in DIALECTS.into_iter().zip(all) {
        // Both read alike; one tells how cost grows.
        let sweeps = dialect == Dialect::PromQl;
        // What one language cannot do yet is no reason to be silent about the other.
        if let Err(error) = questions(&mut Own { store, work, dialect }, sweeps, asked) {
            eprintln!("        {}: {error:#}", asked.name);
            asked.skipped.get_or_insert(format!("{error:#}").replace(['|', '\n'], " "));
        }
    }
    Ok(())
}

/// About A, rolled up.
pub(crate) fn a(work: &Work, store: &Store, truth: &Truth, all: &mut [Asked]) -> Result<()> {
    with_each(work, store, all, |own, sweeps, asked| contender::a(own, work, truth, sweeps, asked))
}

/// About A without rollups.
pub(crate) fn a_base(work: &Work, store: &Store, all: &mut [Asked]) -> Result<()> {
    with_each(work, store, all, |own, _, asked| {
        contender::heat(own, "heat-base", work, asked).map(|_| ())
    })
}

/// About B.
pub(crate) fn b(work: &Work, store: &Store, all: &mut [Asked]) -> Result<()> {
    with_each(work, store, all, |own, sweeps, asked| contender::b(own, work, sweeps, asked))
}

/// Memory of the question about B, by a process that opens the store and does nothing else: this one has held
/// all requests.
pub(crate) fn b_memory(folder: &Path, all: &mut [Asked]) -> Result<()> {
    for ((dialect, name), asked) in DIALECTS.into_iter().zip(all) {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--memory-of").arg(folder);
        if dialect == Dialect::Caql {
            command.arg("--caql");
        }
        let output = command.output().context("starting this program anew")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let bytes = text.trim().parse().with_context(|| {
            format!("{name}, memory: {}", String::from_utf8_lossy(&output.stderr).trim())
        })?;
        for timed in asked.timed.iter_mut().filter(|timed| timed.query.key == "b-p99.9") {
            timed.query.memory_bytes = bytes;
        }
    }
    Ok(())
}

/// The greatest resident size of this process when it has asked a store of B, or of a part of it.
pub(crate) fn memory_of(folder: &Path, is_caql: bool) -> Result<u64> {
    let dialect = if is_caql { Dialect::Caql } else { Dialect::PromQl };
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let options = Options { background: false, ..Options::default() };
    let store = Store::open(disk, folder, &options)?;
    let question = over(&Dataset::b(), 5, dialect.of_b(None));
    let answer = answer(&store, dialect, &question)?;
    let Data::Matrix(streams) = &answer.data else { bail!("an answer that is no matrix") };
    let found = streams.iter().flat_map(|stream| each(stream, found)).flatten().count();
    ensure!(found > 0, "the store has no B to be asked about");
    memory_bytes().context("no VmHWM in /proc")
}
