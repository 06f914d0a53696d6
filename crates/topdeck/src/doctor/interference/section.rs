//! One experiment: its runs, its table, and what is said of its readers.

use std::fmt;
use std::io;
use std::thread;
use std::time::Duration;

use hist::Histogram;

use super::Options;
use super::beside::Beside;
use super::cpus::Cpus;
use super::experiment::{Experiment, Prepared};
use super::judgement;
use super::reader::{self, Reader};
use super::row::{self, Row};
use crate::journal::progress::Progress;

/// What the first run and the last are beside.
const NOTHING: &str = "nothing";
/// How often it is looked whether a run has ended: seldom enough to be no reader itself.
const LOOK: Duration = Duration::from_millis(20);

/// One experiment, measured.
pub(crate) struct Section {
    name: &'static str,
    /// What was done; or why it was not.
    title: Result<String, String>,
    rows: Vec<Row>,
    /// What is said of readers.
    said: Vec<String>,
    /// Readers of which there is no row, and why.
    missing: Vec<String>,
}

impl Section {
    /// Measures: beside nothing, beside each reader, and beside nothing again.
    pub(crate) fn measure(
        experiment: Experiment,
        options: &Options,
        cpus: &Cpus,
        progress: &mut Progress,
    ) -> Section {
        let name = experiment.name();
        let (rows, said, missing) = (Vec::new(), Vec::new(), Vec::new());
        let mut section = Section { name, title: Err(String::new()), rows, said, missing };
        let mut prepared = match experiment.prepare(options) {
            Ok(prepared) => prepared,
            Err(why) => {
                section.title = Err(why);
                return section;
            }
        };
        section.title = Ok(prepared.title.clone());
        let mut run = |beside: &'static str| {
            measured(&mut prepared, options, cpus, || {
                progress.show(|_| format!("{name}, beside {beside}"));
            })
        };
        if let Err(error) = section.all(experiment, &mut run) {
            section.title = Err(format!("it failed: {error}"));
        }
        let still: Vec<&Row> = section.rows.iter().filter(|row| row.beside == NOTHING).collect();
        let readers: Vec<&Reader> = reader::of(experiment).collect();
        for row in &section.rows {
            let Some(reader) = readers.iter().find(|reader| reader.name == row.beside) else {
                continue;
            };
            section.said.push(judgement::of(row, &still, prepared.operation, reader.aside));
        }
        section
    }

    fn all(
        &mut self,
        experiment: Experiment,
        run: &mut dyn FnMut(&'static str) -> io::Result<Histogram>,
    ) -> io::Result<()> {
        self.rows.push(Row { beside: NOTHING, times: run(NOTHING)?, read: None });
        for reader in reader::of(experiment) {
            let name = reader.name;
            let beside = match Beside::start(reader) {
                Ok(beside) => beside,
                Err(why) => {
                    self.missing.push(format!("{name}: not measured: {why}"));
                    continue;
                }
            };
            self.said.extend(beside.notes.iter().map(|note| format!("{name}: {note}")));
            let times = run(name)?;
            match beside.end() {
                Ok(read) => self.rows.push(Row { beside: name, times, read: Some(read) }),
                Err(why) => self.missing.push(format!("{name}: not measured: {why}")),
            }
        }
        self.rows.push(Row { beside: NOTHING, times: run(NOTHING)?, read: None });
        Ok(())
    }

    /// Whether all was measured.
    pub(crate) fn is_whole(&self) -> bool {
        self.title.is_ok() && self.missing.is_empty()
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.title {
            Ok(title) => {
                writeln!(f, "{}: {title}", self.name)?;
                f.write_str(&row::lines(&self.rows))?;
            }
            Err(why) => writeln!(f, "{}: not measured: {why}", self.name)?,
        }
        self.said.iter().chain(&self.missing).try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// One run, on a thread of its own on the processor for that.
fn measured(
    prepared: &mut Prepared,
    options: &Options,
    cpus: &Cpus,
    mut show: impl FnMut(),
) -> io::Result<Histogram> {
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            cpus.enter();
            prepared.run(options.seconds, options.rounds)
        });
        while !run.is_finished() {
            show();
            thread::sleep(LOOK);
        }
        run.join().expect("BUG: a run panicked")
    })
}
