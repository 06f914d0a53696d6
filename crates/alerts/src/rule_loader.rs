//! Rule files, read and checked.

use query::promql;
use render::text::plural;
use rules::slo::{Indicator, Slo, parse_openslo};
use rules::{
    EvaluatedGroup, FilePosition, GroupDefaults, ProblemSeverity, RuleFile, RuleGroup, RuleProblem,
};

use crate::error::{AlertsError, Result};
use crate::rule_paths::find_rule_files;
use crate::rule_reader::read_rule_file;
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
                files.push(read_rule_file(&path, &path.to_string_lossy())?);
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
            more => {
                let more = plural(more as u64, "more error", "more errors");
                format!("{first}; {more}: `topdeck rules check` lists all")
            }
        }))
    }
}

/// Patterns without files, and thresholds of SLOs that are in whatever unit their metric has.
pub(crate) fn warnings(settings: &AlertTables) -> Vec<String> {
    let named = [("rule_files", settings.patterns().collect::<Vec<_>>())];
    let named = named.into_iter().chain([("openslo_files", settings.openslo_patterns().collect())]);
    let mut warnings = Vec::new();
    for (key, patterns) in named {
        for pattern in patterns {
            if find_rule_files(&pattern).is_ok_and(|found| found.is_empty()) {
                warnings.push(format!("{key}: no file matches {pattern:?}"));
            }
        }
    }
    for slo in settings.slos() {
        if let Indicator::Threshold { threshold, .. } = &slo.indicator
            && threshold.unit().is_none()
        {
            warnings.push(format!(
                "SLO {:?}: the threshold {threshold} has no unit and is in that of the metric, \
                 which may be seconds or ns; write a unit, as in {threshold}ms",
                slo.name
            ));
        }
    }
    warnings
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

#[cfg(test)]
mod tests {
    use role::settings::Document;

    use super::*;

    /// An SLO of OpenSLO with an objective in percent.
    fn openslo(name: &str, percent: &str) -> String {
        format!(
            "apiVersion: openslo/v1\nkind: SLO\nmetadata: {{name: {name}}}\nspec:\n  \
             service: shop\n  indicator:\n    spec:\n      thresholdMetric:\n        \
             metricSource:\n          type: topdeck\n          \
             spec: {{selector: latency, threshold: 250ms}}\n  timeWindow:\n  \
             - {{duration: 28d, isRolling: true}}\n  budgetingMethod: Occurrences\n  \
             objectives:\n  - {{op: lte, targetPercent: {percent}}}\n"
        )
    }

    #[test]
    fn openslo_files_of_the_settings_have_several_documents_and_their_problems() {
        let dir = std::env::temp_dir().join(format!("topdeck-openslo-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let write =
            |name: &str, text: String| std::fs::write(dir.join(name), text).expect("written");
        write("a.yaml", format!("{}---\n{}", openslo("search", "99"), openslo("pay", "99.9")));
        // One that can never fire, and one whose name is taken.
        write("b.yaml", format!("{}---\n{}", openslo("slow", "90"), openslo("shop", "99")));
        write("c.yaml", openslo("search", "99.5"));
        let text = "[alerts]\nopenslo_files = [\"*.yaml\"]\n[[slo]]\nname = \"shop\"\n\
                    selector = \"latency\"\nthreshold = \"1s\"\nobjective = 0.99\n";
        let document = Document::parse(text, &dir).expect("valid TOML");
        let settings = AlertTables::read(&document).expect("valid settings");
        let rules = RuleSet::load(&settings).expect("the files can be read");
        let missing = text.replace("*.yaml", "missing.yaml");
        let document = Document::parse(&missing, &dir).expect("valid TOML");
        let settings = AlertTables::read(&document).expect("valid settings");
        let error = RuleSet::load(&settings).expect_err("the file is missing").to_string();
        std::fs::remove_dir_all(&dir).expect("removed");
        let names: Vec<&str> = rules.slos.iter().map(|slo| slo.name.as_str()).collect();
        assert_eq!(names, ["shop", "search", "pay"]);
        let problems: Vec<String> = rules.problems().map(ToString::to_string).collect();
        let has = |file: &str, part: &str| {
            problems.iter().any(|problem| problem.contains(file) && problem.contains(part))
        };
        assert!(has("b.yaml:", "can never fire"), "{problems:?}");
        assert!(has("b.yaml:", "another SLO has the name \"shop\""), "{problems:?}");
        assert!(has("c.yaml:", "another SLO has the name \"search\""), "{problems:?}");
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(rules.check().is_err_and(|error| error.to_string().contains("2 more errors")));
        assert!(error.contains("missing.yaml"), "{error}");
    }
}
