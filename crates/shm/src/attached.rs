//! A process that shows something, of whichever format: one face for files of our own, of PCP and of the JVM.

use crate::error::Result;
use crate::processes::{Fate, Found};
use crate::reader::Reader;
use crate::shown::Metric;

/// A process whose metrics are read.
#[derive(Debug)]
pub struct Attached {
    found: Found,
    program: String,
    command: String,
    how: How,
}

#[derive(Debug)]
enum How {
    Own(Box<Reader>),
}

impl Attached {
    /// Opens the file of a process that [`crate::processes`] found.
    pub fn new(found: Found) -> Result<Attached> {
        let reader = Reader::attach(&found.path)?;
        let process = reader.process();
        let how = How::Own(Box::new(reader));
        Ok(Attached { found, program: process.program, command: process.command, how })
    }

    /// What was found.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Its id as we see it, or as it saw itself where we do not.
    pub fn pid(&self) -> u32 {
        match self.found.fate {
            Fate::Runs { pid } => pid,
            _ => self.found.identity.pid,
        }
    }

    /// The name of its program.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Its command line.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// What our own format says of the process; `None` of others.
    pub fn reader(&self) -> Option<&Reader> {
        match &self.how {
            How::Own(reader) => Some(reader),
        }
    }

    /// All that it shows, now. A series keeps its place; more may follow.
    pub fn metrics(&mut self) -> Result<Vec<Metric>> {
        match &mut self.how {
            How::Own(reader) => reader.metrics(),
        }
    }
}
