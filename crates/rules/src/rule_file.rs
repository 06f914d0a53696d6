//! Rule files of Prometheus, unchanged: groups of recording and alerting rules.
//!
//! Everything that Prometheus rejects is a problem with its line and column. The item that has the
//! problem (rule or group) is left out, and the others are used, where Prometheus refuses the whole
//! file. `promtool check rules` reports the same cases; its lint, duplicate rules, is a warning.
//!
//! An alerting rule has one setting that Prometheus lacks. It is an annotation, because
//! Prometheus and promtool reject unknown keys: `topdeck_missing_data: hold` keeps an alert in its
//! state while data is missing or the query fails. The default, `resolve`, is what Prometheus does.
//! The annotation is not part of notifications.

mod checks;
mod presence;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use query::{LabelSet, promql};

use crate::own::{OwnCondition, is_absence_series, parse_toml_rule_file};
pub use crate::yaml::FilePosition;
use crate::yaml::{YamlNode, YamlValue, parse_yaml};
use crate::yaml_fields::Fields;

/// Maximum size of a rule file in bytes. The largest public ones have 2 MB.
const RULE_FILE_BYTES_MAX: usize = 16 << 20;
/// Annotation that sets [`MissingData`].
const MISSING_DATA_ANNOTATION: &str = "topdeck_missing_data";

/// Name and value of labels or annotations. An empty value of a label removes it from the result.
pub type LabelMap = BTreeMap<String, String>;

/// Rule file.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleFile {
    /// Usable groups in the order of the file.
    pub groups: Vec<RuleGroup>,
    /// Problems by position.
    pub problems: Vec<RuleProblem>,
}

/// Group of rules, evaluated in order.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleGroup {
    /// Name of the file.
    pub file: String,
    /// Name, unique in the file.
    pub name: String,
    /// Position in the file.
    pub position: FilePosition,
    /// Time between evaluations; `None` for the default.
    pub interval_ns: Option<i64>,
    /// How far in the past expressions are evaluated; `None` for the default.
    pub query_offset_ns: Option<i64>,
    /// Maximum number of series or alerts of a rule; 0 for no limit.
    pub limit: usize,
    /// Usable rules.
    pub rules: Vec<Rule>,
}

/// Recording or alerting rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Position in the file.
    pub position: FilePosition,
    /// Recorded metric or name of the alert.
    pub name: String,
    /// PromQL expression; of an own rule, what it reads.
    pub expression: String,
    /// Labels of the group and the rule; templates if the rule is an alerting one.
    pub labels: LabelMap,
    /// Kind.
    pub kind: RuleKind,
}

/// Kind of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleKind {
    /// Writes the result as series.
    Recording,
    /// Raises an alert for each element of the result.
    Alerting(AlertSettings),
}

/// Settings of an alerting rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertSettings {
    /// How long an element must exist before its alert fires (`for`).
    pub for_ns: i64,
    /// How long an alert keeps firing without its element (`keep_firing_for`).
    pub keep_firing_for_ns: i64,
    /// Templates of the annotations.
    pub annotations: LabelMap,
    /// Effect of missing data.
    pub missing_data: MissingData,
    /// Condition of an own rule; `None`: an alert for each element of the result.
    pub condition: Option<Arc<OwnCondition>>,
}

impl AlertSettings {
    /// `for` and `keep_firing_for` of the alert of a series. Those of the rule are about its
    /// condition: streams are absent after a time of their own.
    pub fn delays_ns(&self, series: &LabelSet) -> (i64, i64) {
        match self.is_absence(series) {
            true => (0, 0),
            false => (self.for_ns, self.keep_firing_for_ns),
        }
    }

    /// Whether the alert of a series is that of absent streams.
    pub(crate) fn is_absence(&self, series: &LabelSet) -> bool {
        self.condition.is_some() && is_absence_series(series)
    }
}

/// Effect of missing data and query errors on an alert.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MissingData {
    /// An element that is absent from the result has resolved, and a query error changes nothing,
    /// as in Prometheus.
    #[default]
    Resolve,
    /// An alert without data holds its state and is marked unknown. The expression selects the
    /// series that have data, whether or not they meet the condition.
    Hold {
        /// Expression of the series with data.
        presence: String,
    },
}

/// Whether a problem makes an item unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemSeverity {
    /// The rule or group is not used.
    Error,
    /// It is used.
    Warning,
}

/// Problem of a rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleProblem {
    /// Name of the file.
    pub file: String,
    /// Position.
    pub position: FilePosition,
    /// Severity.
    pub severity: ProblemSeverity,
    /// Cause, with the nearest known name.
    pub message: String,
}

impl fmt::Display for RuleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            ProblemSeverity::Error => "error",
            ProblemSeverity::Warning => "warning",
        };
        write!(f, "{}:{}: {severity}: {}", self.file, self.position, self.message)
    }
}

impl Rule {
    /// Condition of an own rule.
    pub fn condition(&self) -> Option<&Arc<OwnCondition>> {
        self.alert_settings()?.condition.as_ref()
    }

    /// Settings of an alerting rule.
    pub fn alert_settings(&self) -> Option<&AlertSettings> {
        match &self.kind {
            RuleKind::Recording => None,
            RuleKind::Alerting(settings) => Some(settings),
        }
    }
}

/// Reads a file that a rule names, such as the baseline of a change of shape. The error is the
/// cause.
pub(crate) type RuleFileReader<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>, String>;

/// Parses and checks a rule file: one of topdeck if its name ends with `.toml`, otherwise one of
/// Prometheus. A rule that names another file is a problem.
pub fn parse_rule_file(file: &str, text: &str, options: &promql::Options) -> RuleFile {
    let unread = |_: &str| Err("other files are read only for the rules of a server".to_owned());
    parse_rule_file_with(file, text, options, &unread)
}

/// The same with the files that its rules name.
pub fn parse_rule_file_with(
    file: &str,
    text: &str,
    options: &promql::Options,
    read: RuleFileReader<'_>,
) -> RuleFile {
    if file.ends_with(".toml") {
        return parse_toml_rule_file(file, text, options, read);
    }
    let mut parser = RuleFileParser { options, problems: ProblemList::new(file) };
    let groups = parser.parse(text);
    RuleFile { groups, problems: parser.problems.into_sorted() }
}

/// Problems of one file.
pub(crate) struct ProblemList {
    file: String,
    problems: Vec<RuleProblem>,
}

impl ProblemList {
    pub(crate) fn new(file: &str) -> ProblemList {
        ProblemList { file: file.to_owned(), problems: Vec::new() }
    }

    /// Problems by position.
    pub(crate) fn into_sorted(mut self) -> Vec<RuleProblem> {
        model::sort::by_key(&mut self.problems, |problem| problem.position);
        self.problems
    }

    fn report(&mut self, position: FilePosition, severity: ProblemSeverity, message: String) {
        let file = self.file.clone();
        self.problems.push(RuleProblem { file, position, severity, message });
    }

    pub(crate) fn error(&mut self, position: FilePosition, message: impl Into<String>) {
        self.report(position, ProblemSeverity::Error, message.into());
    }

    pub(crate) fn warn(&mut self, position: FilePosition, message: impl Into<String>) {
        self.report(position, ProblemSeverity::Warning, message.into());
    }

    pub(crate) fn error_count(&self) -> usize {
        self.problems.iter().filter(|problem| problem.severity == ProblemSeverity::Error).count()
    }
}

/// Parser of one file.
struct RuleFileParser<'a> {
    options: &'a promql::Options,
    problems: ProblemList,
}

impl RuleFileParser<'_> {
    fn parse(&mut self, text: &str) -> Vec<RuleGroup> {
        let first = FilePosition { line: 1, column: 1 };
        if text.len() > RULE_FILE_BYTES_MAX {
            let found = text.len();
            let limit = format!("limit of {RULE_FILE_BYTES_MAX} bytes exceeded ({found})");
            self.problems.error(first, limit + "; split the file");
            return Vec::new();
        }
        let root = match parse_yaml(text) {
            Err(error) => {
                self.problems.error(error.position, error.message);
                return Vec::new();
            }
            Ok((root, second)) => {
                if let Some(second) = second {
                    self.problems.warn(second, "only the first document of the file is used");
                }
                root
            }
        };
        if matches!(root.value, YamlValue::Null) {
            return Vec::new();
        }
        let Some(fields) = Fields::read(&mut self.problems, &root, "rule file", &["groups"]) else {
            return Vec::new();
        };
        let mut groups: Vec<RuleGroup> = Vec::new();
        let mut names: HashMap<String, FilePosition> = HashMap::new();
        for node in fields.list(&mut self.problems, "groups") {
            let Some(group) = self.group(node) else { continue };
            if let Some(other) = names.insert(group.name.clone(), group.position) {
                let name = &group.name;
                let message = format!("group {name:?} repeated; the first one is at {other}");
                self.problems.error(group.position, message);
                names.insert(group.name, other);
                continue;
            }
            groups.push(group);
        }
        self.warn_of_duplicates(&groups);
        groups
    }

    fn group(&mut self, node: &YamlNode) -> Option<RuleGroup> {
        let keys = ["name", "interval", "limit", "query_offset", "labels", "rules"];
        let before = self.problems.error_count();
        let fields = Fields::read(&mut self.problems, node, "group", &keys)?;
        let name = fields.text(&mut self.problems, "name").unwrap_or_default();
        if name.is_empty() {
            self.problems.error(node.position, "group without a name; set name");
        }
        let interval_ns =
            fields.duration(&mut self.problems, "interval").filter(|&interval| interval > 0);
        let query_offset_ns = fields.duration(&mut self.problems, "query_offset");
        let limit = fields.limit(&mut self.problems, "limit");
        let labels = fields.labels(&mut self.problems, "labels", "label");
        if self.problems.error_count() > before {
            return None;
        }
        let rules: Vec<Arc<YamlNode>> = fields.list(&mut self.problems, "rules").to_vec();
        let mut usable = Vec::with_capacity(rules.len());
        for (index, rule) in rules.iter().enumerate() {
            usable.extend(self.rule(&name, index + 1, rule, &labels));
        }
        let file = self.problems.file.clone();
        let position = node.position;
        let rules = usable;
        Some(RuleGroup { file, name, position, interval_ns, query_offset_ns, limit, rules })
    }

    fn rule(
        &mut self,
        group: &str,
        number: usize,
        node: &YamlNode,
        group_labels: &LabelMap,
    ) -> Option<Rule> {
        let keys = ["record", "alert", "expr", "for", "keep_firing_for", "labels", "annotations"];
        let before = self.problems.error_count();
        let what = format!("rule {number} of group {group:?}");
        let fields = Fields::read(&mut self.problems, node, &what, &keys)?;
        let record = fields.text(&mut self.problems, "record").filter(|name| !name.is_empty());
        let alert = fields.text(&mut self.problems, "alert").filter(|name| !name.is_empty());
        let for_ns = fields.duration(&mut self.problems, "for").unwrap_or(0);
        let keep_firing_for_ns =
            fields.duration(&mut self.problems, "keep_firing_for").unwrap_or(0);
        let own_labels = fields.labels(&mut self.problems, "labels", "label");
        let mut annotations = fields.labels(&mut self.problems, "annotations", "annotation");
        let expression = self.expression(&fields, &what);
        let mut labels = group_labels.clone();
        labels.extend(own_labels.clone());
        let (name, kind) = match (record, alert) {
            (None, None) => {
                self.problems
                    .error(node.position, format!("{what} has no name; set record or alert"));
                return None;
            }
            (Some(_), Some(_)) => {
                let position = fields.position("alert");
                self.problems
                    .error(position, format!("{what} has both record and alert; remove one"));
                return None;
            }
            (Some(name), None) => {
                self.check_recording_rule(&fields, &what, &name);
                (name, RuleKind::Recording)
            }
            (None, Some(name)) => {
                self.check_templates(&fields, &name, &own_labels, &annotations);
                let setting = annotations.remove(MISSING_DATA_ANNOTATION);
                let position = fields.entry_position("annotations", MISSING_DATA_ANNOTATION);
                let text = expression.as_deref().unwrap_or("");
                let missing_data = self.missing_data(setting.as_deref(), text, position);
                let settings = AlertSettings {
                    for_ns,
                    keep_firing_for_ns,
                    annotations,
                    missing_data,
                    condition: None,
                };
                (name, RuleKind::Alerting(settings))
            }
        };
        let position = node.position;
        let expression = expression?;
        (self.problems.error_count() == before).then_some(Rule {
            position,
            name,
            expression,
            labels,
            kind,
        })
    }
}
