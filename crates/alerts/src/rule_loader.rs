//! Rule files, read and checked.

use query::promql;
use rules::slo::{Slo, parse_openslo};
use rules::{
    EvaluatedGroup, FilePosition, GroupDefaults, ProblemSeverity, RuleFile, RuleGroup, RuleProblem,
    parse_rule_file,
};

use crate::error::{AlertsError, Result};
use crate::rule_paths::find_rule_files;
use crate::settings::AlertTables;

/// PromQL features in rules: all, as in the HTTP API.
pub fn rule_promql_options() -> promql::Options {
    promql::Options { standard_only: false, ..promql::Options::all() }
}

/// Rule files and SLOs of the settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSet {
    pub(crate) files: Vec<RuleFile>,
    /// SLOs of the settings and of OpenSLO files; their names are unique.
    pub(crate) slos: Vec<Slo>,
    slo_problems: Vec<RuleProblem>,
    pub(crate) defaults: GroupDefaults,
}

impl RuleSet {
    /// Reads all files. A file that cannot be read is an error: its alerts would be lost.
    pub(crate) fn load(settings: &AlertTables) -> Result<RuleSet> {
        let mut files = Vec::new();
        for pattern in settings.patterns() {
            for path in find_rule_files(&pattern)? {
                let failed = |cause| AlertsError::Read { path: path.clone(), cause };
                let text = std::fs::read_to_string(&path).map_err(failed)?;
                let name = path.to_string_lossy();
                files.push(parse_rule_file(&name, &text, &rule_promql_options()));
            }
        }
        let (slos, slo_problems) = load_slos(settings)?;
        Ok(RuleSet { files, slos, slo_problems, defaults: settings.group_defaults() })
    }

    /// Problems of all files.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &RuleProblem> {
        self.files.iter().flat_map(|file| &file.problems).chain(&self.slo_problems)
    }

    /// Number of usable rules of files.
    pub(crate) fn file_rule_count(&self) -> usize {
        self.files.iter().flat_map(|file| &file.groups).map(|group| group.rules.len()).sum()
    }

    /// Number of usable rules, including those of SLOs.
    pub(crate) fn rule_count(&self) -> usize {
        self.rule_groups().map(|group| group.rules.len()).sum()
    }

    /// Groups of all origins.
    fn rule_groups(&self) -> impl Iterator<Item = RuleGroup> {
        let files = self.files.iter().flat_map(|file| file.groups.iter().cloned());
        files.chain(self.slos.iter().map(Slo::rule_group).filter(|group| !group.rules.is_empty()))
    }

    /// Groups without states.
    pub(crate) fn groups(&self) -> Vec<EvaluatedGroup> {
        self.rule_groups().map(|group| EvaluatedGroup::new(group, &self.defaults)).collect()
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

/// SLOs of the settings, then those of OpenSLO files, and the problems of the files.
fn load_slos(settings: &AlertTables) -> Result<(Vec<Slo>, Vec<RuleProblem>)> {
    let (mut slos, mut problems) = (settings.slos(), Vec::new());
    for pattern in settings.openslo_patterns() {
        for path in find_rule_files(&pattern)? {
            let failed = |cause| AlertsError::Read { path: path.clone(), cause };
            let text = std::fs::read_to_string(&path).map_err(failed)?;
            let file = path.to_string_lossy().into_owned();
            let (found, more) = parse_openslo(&file, &text);
            problems.extend(more);
            for slo in found {
                if slos.iter().any(|other| other.name == slo.name) {
                    problems.push(RuleProblem {
                        file: file.clone(),
                        position: FilePosition { line: 1, column: 1 },
                        severity: ProblemSeverity::Error,
                        message: format!("another SLO has the name {:?}; rename it", slo.name),
                    });
                } else {
                    slos.push(slo);
                }
            }
        }
    }
    Ok((slos, problems))
}
