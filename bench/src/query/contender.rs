//! Who is asked, and the questions in their order: everybody gets the same.

use anyhow::{Result, ensure};
use collect::synthetic::Truth;

use super::accuracy::{self, Found, compare};
use super::asked::{Asked, Swept, Timed};
use super::question::{self, Dialect, Question, over};
use crate::store::{Query, Work};

/// Answers questions.
pub(crate) trait Contender {
    fn dialect(&self) -> Dialect;

    /// Asks once to warm up, then as often as is counted.
    fn ask(&mut self, key: &'static str, question: &Question) -> Result<(Query, Answer)>;
}

/// What an answer holds.
pub(crate) struct Answer {
    /// By stream, for each step a number if it has one.
    pub(crate) numbers: Vec<Vec<Option<Found>>>,
    /// Measurements in all histograms.
    pub(crate) count: f64,
}

impl Answer {
    /// The numbers of the only stream, in other units.
    fn only(&self, factor: f64) -> Result<Vec<Option<Found>>> {
        ensure!(self.numbers.len() == 1, "{} streams instead of one", self.numbers.len());
        let scaled = |found: &Option<Found>| found.map(|found| found.times(factor));
        Ok(self.numbers[0].iter().map(scaled).collect())
    }
}

fn timed(
    contender: &mut dyn Contender,
    key: &'static str,
    question: Question,
    asked: &mut Asked,
) -> Result<Answer> {
    let (query, answer) = contender.ask(key, &question)?;
    asked.timed.push(Timed { text: question.text, query });
    Ok(answer)
}

/// The heatmap of A, from whatever the store has.
pub(crate) fn heat(
    contender: &mut dyn Contender,
    key: &'static str,
    work: &Work,
    asked: &mut Asked,
) -> Result<f64> {
    let question = over(&work.a, 90, contender.dialect().heat());
    Ok(timed(contender, key, question, asked)?.count)
}

/// All questions about A. Those whose size is varied are asked if `sweeps` says so.
pub(crate) fn a(
    contender: &mut dyn Contender,
    work: &Work,
    truth: &Truth,
    sweeps: bool,
    asked: &mut Asked,
) -> Result<()> {
    let (dataset, dialect) = (&work.a, contender.dialect());
    let count = heat(contender, "heat", work, asked)?;
    asked.total = Some((count, truth.total().count));
    for (key, q) in [("p99", 0.99), ("p99.9", 0.999)] {
        let answer = timed(contender, key, over(dataset, 4, dialect.quantile(q, 4)), asked)?;
        let truths = accuracy::quantiles(truth, q);
        let found = answer.only(dialect.nanoseconds())?;
        asked.accuracies.push(compare(key, &found, &truths, false));
    }
    let answer = timed(contender, "below", over(dataset, 4, dialect.below()), asked)?;
    let found = answer.only(dialect.parts())?;
    asked.accuracies.push(compare("below", &found, &accuracy::shares(truth), true));
    let answer = timed(contender, "three", over(dataset, 4, dialect.three()), asked)?;
    ensure!(answer.numbers.len() == 3, "{} streams instead of three", answer.numbers.len());

    let limits = [
        ("above", accuracy::counts_above(truth)),
        ("above-edge", accuracy::counts_above_edge(dataset, truth)),
    ];
    for (key, truths) in limits {
        let text = dialect.above(key == "above-edge");
        let found = contender.ask(key, &over(dataset, 4, text))?.1.only(1.0)?;
        asked.accuracies.push(compare(key, &found, &truths, false));
    }
    if sweeps {
        sweep(contender, question::sweeps_of_a(work, dialect), asked)?;
    }
    Ok(())
}

/// All questions about B.
pub(crate) fn b(
    contender: &mut dyn Contender,
    work: &Work,
    sweeps: bool,
    asked: &mut Asked,
) -> Result<()> {
    let dialect = contender.dialect();
    let answer = timed(contender, "b-p99.9", over(&work.b, 5, dialect.of_b(None)), asked)?;
    let found = answer.only(1.0)?.into_iter().flatten().count();
    ensure!(found == work.b.scale().minutes / 5, "{found} steps of B have a number");
    if sweeps {
        sweep(contender, question::sweeps_of_b(work, dialect), asked)?;
    }
    Ok(())
}

fn sweep(
    contender: &mut dyn Contender,
    sweeps: Vec<(question::Sweep, f64, Question)>,
    asked: &mut Asked,
) -> Result<()> {
    for (sweep, size, question) in sweeps {
        let (query, _) = contender.ask("sweep", &question)?;
        asked.swept.push(Swept { sweep, size, query });
    }
    Ok(())
}
