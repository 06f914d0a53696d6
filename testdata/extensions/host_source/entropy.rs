//! Example of a host source: the entropy that the kernel's random number generator has. The file
//! has a setting with its check, a metric, a warning if the system lacks the file, and a test.

use std::fs;
use std::path::PathBuf;

use role::settings::SettingsCheck;
use serde::Deserialize;

use crate::error::Result;
use crate::metric::{MetricDefinition, MetricSink as _, RowReporter, gauge};
use crate::source::{HostSource, Note, Opening, SourceSettings, TABLE};

const ENTROPY: MetricDefinition = gauge(
    "host_entropy_bits",
    "",
    "entropy of the kernel's pool (`/proc/sys/kernel/random/entropy_avail`), in bits",
);
const FILE: &str = "/proc/sys/kernel/random/entropy_avail";

/// Settings of the source.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EntropySettings {
    /// Entropy of the kernel's pool: true.
    entropy: bool,
    /// The file that is read, an absolute path: `/proc/sys/kernel/random/entropy_avail`.
    entropy_file: PathBuf,
}

impl Default for EntropySettings {
    fn default() -> EntropySettings {
        EntropySettings { entropy: true, entropy_file: FILE.into() }
    }
}

impl SourceSettings for EntropySettings {
    const KEYS: &'static [&'static str] = &["entropy", "entropy_file"];

    fn check(&self, check: &mut SettingsCheck<'_>) {
        if !self.entropy_file.is_absolute() {
            let what = "entropy_file is a relative path, must be an absolute one";
            check.problem(TABLE, "entropy_file", what);
        }
    }

    fn is_enabled(&self) -> bool {
        self.entropy
    }

    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        let path = self.entropy_file.clone();
        if self.entropy && read(&path).is_none() {
            let text = format!("cannot read {}; set `entropy = false`", path.display());
            opening.notes.push(Note { collector: "entropy", text });
            return Ok(None);
        }
        let source = self.entropy.then(|| Box::new(EntropyFile { path }) as Box<dyn HostSource>);
        Ok(source)
    }
}

#[derive(Debug)]
struct EntropyFile {
    path: PathBuf,
}

impl HostSource for EntropyFile {
    fn read(&mut self, report: &mut RowReporter<'_>, _began: i64) -> u64 {
        match read(&self.path) {
            Some(bits) => {
                report.record(&ENTROPY, &[], bits);
                0
            }
            None => 1,
        }
    }
}

fn read(path: &PathBuf) -> Option<f64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use decode::VecSeriesSink;

    use super::*;

    #[test]
    fn a_file_without_a_number_is_counted_as_a_failed_read() {
        let path = std::env::temp_dir().join(format!("topdeck-entropy-{}", std::process::id()));
        let mut rows = VecSeriesSink::default();
        let mut source = EntropyFile { path: path.clone() };
        fs::write(&path, "none\n").unwrap();
        assert_eq!(source.read(&mut RowReporter::new(&mut rows, "h", 10, 20), 0), 1);
        fs::write(&path, "256\n").unwrap();
        assert_eq!(source.read(&mut RowReporter::new(&mut rows, "h", 10, 20), 0), 0);
        fs::remove_file(&path).unwrap();
        assert_eq!(rows.rows.len(), 1);
        assert_eq!(rows.rows[0].0.name(), "host_entropy_bits");
    }

    #[test]
    fn it_is_on_by_default() {
        assert!(EntropySettings::default().is_enabled());
    }
}
