//! Parts of a long run: each is timed and ends ok, FAILED or skipped with its reason; a failure
//! does not stop those after it, so that one run tells all.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

/// A named piece of work. It gets its own name, to show it beside the commands it runs.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// One line for `--help`.
    pub(crate) about: &'static str,
    pub(crate) run: fn(&str) -> Result<Outcome>,
}

/// How a part ended, unless it failed.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed,
    /// Could not run here; the reason is for the person who reads the table.
    Skipped(String),
}

/// Runs the parts in order, shows the table and the counts. Fails if any part did.
pub(crate) fn run_all<'a>(parts: impl IntoIterator<Item = &'a Part>) -> ExitCode {
    let rows: Vec<Row> = parts.into_iter().map(run_one).collect();
    print!("\n{}{}\n", table(&rows), counts(&rows));
    match rows.iter().any(|row| row.result == Verdict::Failed) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

struct Row {
    name: &'static str,
    result: Verdict,
    time: Duration,
}

#[derive(PartialEq)]
enum Verdict {
    Ok,
    Failed,
    Skipped(String),
}

fn run_one(part: &Part) -> Row {
    let start = Instant::now();
    let name = part.name;
    let result = match (part.run)(name) {
        Ok(Outcome::Passed) => Verdict::Ok,
        Ok(Outcome::Skipped(reason)) => {
            println!("skipped: {name}: {reason}");
            Verdict::Skipped(reason)
        }
        Err(error) => {
            println!("FAILED: {name}: {error:#}");
            Verdict::Failed
        }
    };
    let time = start.elapsed();
    println!("== {name}: {}\n", seconds(time));
    Row { name, result, time }
}

fn table(rows: &[Row]) -> String {
    let head = ["part".to_owned(), "result".to_owned(), "seconds".to_owned()];
    let cells = rows.iter().map(|row| {
        let result = match &row.result {
            Verdict::Ok => "ok".to_owned(),
            Verdict::Failed => "FAILED".to_owned(),
            Verdict::Skipped(reason) => format!("skipped: {reason}"),
        };
        [row.name.to_owned(), result, format!("{:.1}", row.time.as_secs_f64())]
    });
    let lines: Vec<[String; 3]> = std::iter::once(head).chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let (name, result) = (width(0).unwrap_or(0), width(1).unwrap_or(0));
    lines.iter().map(|[n, r, s]| format!("{n:name$}  {r:result$}  {s:>7}\n")).collect()
}

fn counts(rows: &[Row]) -> String {
    let passed = rows.iter().filter(|row| row.result == Verdict::Ok).count();
    let failed = rows.iter().filter(|row| row.result == Verdict::Failed).count();
    format!("{passed} passed, {failed} failed, {} skipped", rows.len() - passed - failed)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn each_way_to_end_is_a_row_and_is_counted() {
        let parts = [
            Part { name: "good", about: "", run: |_| Ok(Outcome::Passed) },
            Part { name: "bad", about: "", run: |_| bail!("no luck") },
            Part { name: "absent", about: "", run: |_| Ok(Outcome::Skipped("no tool".into())) },
        ];
        let mut rows: Vec<Row> = parts.iter().map(run_one).collect();
        rows.iter_mut().for_each(|row| row.time = Duration::from_millis(1250));
        let expected = "part    result            seconds\n\
                        good    ok                    1.2\n\
                        bad     FAILED                1.2\n\
                        absent  skipped: no tool      1.2\n";
        assert_eq!(table(&rows), expected);
        assert_eq!(counts(&rows), "1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn fails_only_if_a_part_does() {
        let good = Part { name: "good", about: "", run: |_| Ok(Outcome::Passed) };
        let bad = Part { name: "bad", about: "", run: |_| bail!("no luck") };
        assert_eq!(run_all([&good]), ExitCode::SUCCESS);
        assert_eq!(run_all([&bad, &good]), ExitCode::FAILURE);
    }

    #[test]
    fn a_part_hears_its_own_name() {
        let run = |name: &str| Ok(Outcome::Skipped(name.to_owned()));
        let row = run_one(&Part { name: "echo", about: "", run });
        assert!(row.result == Verdict::Skipped("echo".to_owned()));
    }
}
