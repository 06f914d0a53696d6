//! Rule files, read and checked.

use query::promql;
use rules::{
    EvaluatedGroup, GroupDefaults, ProblemSeverity, RuleFile, RuleProblem, parse_rule_file,
};

use crate::error::{AlertsError, Result};
use crate::rule_paths::find_rule_files;
use crate::settings::AlertTables;

/// PromQL features in rules: all, as in the HTTP API.
pub fn rule_promql_options() -> promql::Options {
    promql::Options { standard_only: false, ..promql::Options::all() }
}

/// Rule files of the settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSet {
    pub(crate) files: Vec<RuleFile>,
    pub(crate) defaults: GroupDefaults,
}

impl RuleSet {
    /// Reads all files. A file that cannot be read is an error: its alerts would be lost.
    pub(crate) fn load(settings: &AlertTables) -> Result<RuleSet> {
        let mut files = Vec::new();
        for pattern in settings.patterns() {
            for path in find_rule_files(&pattern)? {
                let failed = |source| AlertsError::Read { path: path.clone(), source };
                let text = std::fs::read_to_string(&path).map_err(failed)?;
                let name = path.to_string_lossy();
                files.push(parse_rule_file(&name, &text, &rule_promql_options()));
            }
        }
        Ok(RuleSet { files, defaults: settings.group_defaults() })
    }

    /// Problems of all files.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &RuleProblem> {
        self.files.iter().flat_map(|file| &file.problems)
    }

    /// Number of usable rules.
    pub(crate) fn rule_count(&self) -> usize {
        self.files.iter().flat_map(|file| &file.groups).map(|group| group.rules.len()).sum()
    }

    /// Groups without states.
    pub(crate) fn groups(&self) -> Vec<EvaluatedGroup> {
        let groups = self.files.iter().flat_map(|file| file.groups.iter().cloned());
        groups.map(|group| EvaluatedGroup::new(group, &self.defaults)).collect()
    }

    /// The first error, and the number of the others.
    pub(crate) fn check(&self) -> Result<()> {
        let mut errors =
            self.problems().filter(|problem| problem.severity == ProblemSeverity::Error);
        let Some(first) = errors.next() else { return Ok(()) };
        let first = first.to_string();
        Err(AlertsError::Rules(match errors.count() {
            0 => first,
            more => format!("{first}; {more} more errors: `topdeck rules check` lists all"),
        }))
    }
}
