//! Contenders take turns, once per round, as in `rounds.rs`; a turn is one sample.
//!
//! A contender that fails is excluded, and its row shows the reason: a machine without Go still
//! compares the others.

use anyhow::Result;

use crate::report::Samples;

use super::ContenderLabel;

/// Results of one contender.
pub(crate) struct ContenderTurns<T> {
    pub(crate) label: ContenderLabel,
    /// Reason for missing figures.
    pub(crate) failed: Option<String>,
    results: Vec<T>,
}

/// Results of all contenders in the given order. The order of turns rotates from round to round.
pub(crate) fn run_turns<T>(
    labels: Vec<ContenderLabel>,
    rounds: usize,
    mut take: impl FnMut(usize) -> Result<T>,
) -> Vec<ContenderTurns<T>> {
    let new = |label| ContenderTurns { label, failed: None, results: Vec::new() };
    let mut all: Vec<ContenderTurns<T>> = labels.into_iter().map(new).collect();
    for round in 0..rounds {
        for turn in 0..all.len() {
            let at = (turn + round) % all.len();
            if all[at].failed.is_some() {
                continue;
            }
            match take(at) {
                Ok(result) => all[at].results.push(result),
                Err(error) => {
                    eprintln!("        {}: {error:#}", all[at].label.name);
                    all[at].failed = Some(format!("not run: {error:#}").replace(['|', '\n'], " "));
                }
            }
        }
    }
    all
}

impl<T> ContenderTurns<T> {
    /// One figure of each turn.
    pub(crate) fn samples(&self, figure: &dyn Fn(&T) -> Option<f64>) -> Samples {
        let mut samples = Samples::new(&self.label.name, self.label.promises);
        if self.failed.is_none() {
            samples.values = self.results.iter().filter_map(figure).collect();
        }
        samples
    }

    /// A table row of this many columns: name, promises, and the figures or the reason why there
    /// are none.
    pub(crate) fn row(&self, width: usize, figures: impl FnOnce() -> Vec<String>) -> Vec<String> {
        let mut row = vec![self.label.name.clone(), self.label.promises.to_owned()];
        match &self.failed {
            Some(reason) => row.push(reason.clone()),
            None => row.extend(figures()),
        }
        row.resize(width, "–".to_owned());
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contender_that_fails_once_is_excluded_with_its_reason() {
        let labels = vec![ContenderLabel::new("sound", ""), ContenderLabel::new("broken", "")];
        let mut taken = Vec::new();
        let all = run_turns(labels, 3, |at| {
            taken.push(at);
            anyhow::ensure!(at == 0, "go is not installed");
            Ok(1.0)
        });
        assert_eq!(taken, [0, 1, 0, 0]);
        assert_eq!(all[0].samples(&|one| Some(*one)).values, [1.0; 3]);
        let row = all[1].row(4, Vec::new);
        assert_eq!(row, ["broken", "", "not run: go is not installed", "–"]);
    }
}
