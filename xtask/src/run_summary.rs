//! Summary of a run: a table of the parts, skipped tests with reasons, slow tests, failures with
//! the commands that repeat them, and the counts.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use crate::ci_part::{PartResult, PartVerdict};
use crate::test_report::{TestReport, Timing};

/// Number of slowest tests and test programs listed.
const SLOWEST: usize = 20;

/// Slower tests are listed.
const SLOW_SECONDS: f64 = 10.0;

/// The parts of a run, in list order.
pub(crate) struct RunSummary<'a> {
    pub(crate) results: &'a [PartResult],
    /// Wall time of the whole run; parts run concurrently.
    pub(crate) time: Duration,
}

impl Display for RunSummary<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut all = TestReport::default();
        self.results.iter().for_each(|result| all.add(result.tests.clone()));
        self.write_skipped(out)?;
        write_slowest(out, "tests", &all.tests)?;
        write_slowest(out, "test programs", &all.programs)?;
        for test in all.tests.iter().filter(|test| test.seconds > SLOW_SECONDS) {
            writeln!(
                out,
                "warning: {} took {:.1} s, above {SLOW_SECONDS} s",
                test.name, test.seconds
            )?;
        }
        self.write_table(out)?;
        self.write_failures(out)?;
        let (passed, failed, skipped) = self.counts(&all);
        if all.unchanged > 0 {
            writeln!(out, "{} of these passed in an earlier run on the same files", all.unchanged)?;
        }
        writeln!(out, "{:.0} s in all", self.time.as_secs_f64())?;
        // Machine-readable: this form, on its own line.
        writeln!(out, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

impl RunSummary<'_> {
    /// A part without tests counts as one.
    fn counts(&self, all: &TestReport) -> (u64, usize, usize) {
        let is_one = |result: &&PartResult| {
            result.tests.count() == 0
                && matches!(result.outcome, PartVerdict::Passed | PartVerdict::Unchanged)
        };
        let parts = self.results.iter().filter(is_one).count() as u64;
        (all.passed + parts, all.failed.len(), all.skipped.len())
    }

    fn write_skipped(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut title = "Skipped, with reasons:\n";
        for result in self.results {
            for test in &result.tests.skipped {
                writeln!(out, "{title}  {}: {}: {}", result.name, test.name, test.reason)?;
                title = "";
            }
        }
        Ok(())
    }

    fn write_failures(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut title = "\nFailed, with commands to repeat:\n";
        for result in self.results {
            for failure in &result.tests.failed {
                writeln!(out, "{title}  {}: {}", result.name, failure.name)?;
                writeln!(out, "      {}", failure.repeat)?;
                title = "";
            }
        }
        Ok(())
    }

    fn write_table(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let head = ["part", "result", "seconds", "tests", "failed", "skipped"].map(str::to_owned);
        let rows = self.results.iter().map(|result| {
            let tests = &result.tests;
            let count = |count: u64| if count == 0 { String::new() } else { count.to_string() };
            let verdict = match &result.outcome {
                PartVerdict::Passed => "ok",
                PartVerdict::Unchanged => "unchanged",
                PartVerdict::Failed => "FAILED",
                PartVerdict::Skipped(_) => "skipped",
            };
            [
                result.name.to_owned(),
                verdict.to_owned(),
                format!("{:.1}", result.time.as_secs_f64()),
                count(tests.count()),
                count(tests.failed.len() as u64),
                count(tests.skipped.len() as u64),
            ]
        });
        let rows: Vec<[String; 6]> = std::iter::once(head).chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        writeln!(out)?;
        for [part, verdict, numbers @ ..] in &rows {
            write!(out, "{part:0$}  {verdict:1$}", widths[0], widths[1])?;
            for (number, width) in numbers.iter().zip(&widths[2..]) {
                write!(out, "  {number:>width$}")?;
            }
            writeln!(out)?;
        }
        writeln!(out)
    }
}

fn write_slowest(out: &mut Formatter<'_>, what: &str, timings: &[Timing]) -> fmt::Result {
    if timings.is_empty() {
        return Ok(());
    }
    let mut slowest: Vec<&Timing> = timings.iter().collect();
    slowest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    writeln!(out, "\nThe slowest {what}, in seconds:")?;
    slowest
        .iter()
        .take(SLOWEST)
        .try_for_each(|timing| writeln!(out, "  {:7.1}  {}", timing.seconds, timing.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_report::{SkippedTest, TestFailure};

    #[test]
    fn summary_lists_failed_skipped_and_slow_tests() {
        let text = str::to_owned;
        let tests = TestReport {
            passed: 7,
            failed: vec![TestFailure {
                name: text("host it b"),
                repeat: text("cargo test b"),
                output: String::new(),
            }],
            skipped: vec![SkippedTest { name: text("host it c"), reason: text("no BPF") }],
            unchanged: 0,
            tests: vec![
                Timing { name: text("host it a"), seconds: 0.5 },
                Timing { name: text("host it d"), seconds: 12.25 },
            ],
            programs: Vec::new(),
        };
        let time = Duration::from_millis(1250);
        let none = TestReport::default;
        let results = [
            PartResult { name: "fmt", outcome: PartVerdict::Passed, tests: none(), time },
            PartResult { name: "test", outcome: PartVerdict::Failed, tests, time },
        ];
        let expected = "Skipped, with reasons:
  test: host it c: no BPF

The slowest tests, in seconds:
     12.2  host it d
      0.5  host it a
warning: host it d took 12.2 s, above 10 s

part  result  seconds  tests  failed  skipped
fmt   ok          1.2                        
test  FAILED      1.2      9       1        1


Failed, with commands to repeat:
  test: host it b
      cargo test b
2 s in all
8 passed, 1 failed, 1 skipped
";
        let time = Duration::from_millis(2400);
        assert_eq!(RunSummary { results: &results, time }.to_string(), expected);
    }
}
