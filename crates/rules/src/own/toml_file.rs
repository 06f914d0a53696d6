//! Rule files of topdeck, in TOML: the rules of a file are one group.
//!
//! A rule with an error is left out and the others are used, also if its text is no TOML: the error
//! belongs to the rule before it. `docs/rules.md` describes the keys.

use std::borrow::Cow;
use std::collections::HashMap;

use query::promql;
use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, ValueDeserializer};

use super::rule_absence::{ABSENCE_LABEL, AbsenceKey};
use super::rule_order::order_rules;
use super::rule_table::{RuleContext, RuleTable};
use super::table_problem::{TableProblem, nearest_name, unknown_name};
use crate::rule_file::{
    FilePosition, LabelMap, ProblemList, Rule, RuleFile, RuleFileReader, RuleGroup, RuleKind,
};
use crate::template::check_alert_text;

/// Time between the scheduled evaluations of a file that sets none: 10 s.
const INTERVAL_NS: i64 = 10 * 1_000_000_000;
/// Keys of a file.
const KEYS: [&str; 3] = ["absence", "interval", "rule"];
/// Maximum number of rules of a file, ten times what a large installation has.
const RULES_MAX: usize = 100_000;
/// Unknown keys of a rule that are told.
const UNKNOWN_KEYS_MAX: usize = 20;

/// Parses and checks a rule file in TOML.
pub(crate) fn parse_toml_rule_file(
    file: &str,
    text: &str,
    options: &promql::Options,
    read: RuleFileReader<'_>,
) -> RuleFile {
    let lines = LineStarts::new(text);
    let mut parser = TomlParser { text, lines, options, read, problems: ProblemList::new(file) };
    let groups = parser.parse(file);
    RuleFile { groups, problems: parser.problems.into_sorted() }
}

struct TomlParser<'a> {
    text: &'a str,
    lines: LineStarts,
    options: &'a promql::Options,
    read: RuleFileReader<'a>,
    problems: ProblemList,
}

impl TomlParser<'_> {
    fn error(&mut self, byte: usize, message: impl Into<String>) {
        let position = self.lines.position(self.text, byte);
        self.problems.error(position, message);
    }

    fn parse(&mut self, file: &str) -> Vec<RuleGroup> {
        let (root, errors) = DeTable::parse_recoverable(self.text);
        let mut error_bytes: Vec<usize> =
            errors.iter().map(|error| error.span().map_or(0, |span| span.start)).collect();
        for (error, byte) in errors.iter().zip(&error_bytes) {
            self.error(*byte, error.message());
        }
        model::sort::by(&mut error_bytes, Ord::cmp);
        let root = root.get_ref();
        for (key, _) in root.iter() {
            if !KEYS.contains(&key.get_ref().as_ref()) {
                self.error(key.span().start, unknown_name("key", key.get_ref(), &KEYS));
            }
        }
        let (interval_ns, absence) = (self.interval(root), self.absence(root));
        let context = RuleContext { options: self.options, absence, read: self.read };
        let tables = self.rule_tables(root);
        let starts: Vec<usize> = tables.iter().map(|table| table.span().start).collect();
        let mut rules = Vec::new();
        for (at, table) in tables.iter().enumerate() {
            let end = starts.get(at + 1).copied().unwrap_or(usize::MAX);
            // A rule that is not complete must not be used as if it were.
            let first = error_bytes.partition_point(|byte| *byte < starts[at]);
            if error_bytes.get(first).is_some_and(|byte| *byte < end) {
                continue;
            }
            rules.extend(self.rule(table, &context));
        }
        let (rules, unusable) = order_rules(self.without_duplicates(rules));
        for (rule, cause) in unusable {
            self.problems.error(rule.position, cause);
        }
        if rules.is_empty() {
            return Vec::new();
        }
        let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
        vec![RuleGroup {
            file: file.to_owned(),
            name: name.strip_suffix(".toml").unwrap_or(name).to_owned(),
            position: FilePosition { line: 1, column: 1 },
            interval_ns: Some(interval_ns),
            query_offset_ns: None,
            limit: 0,
            rules,
        }]
    }

    fn interval(&mut self, root: &DeTable<'_>) -> i64 {
        let Some((key, value)) = root.iter().find(|(key, _)| key.get_ref() == "interval") else {
            return INTERVAL_NS;
        };
        let text = value.get_ref().as_str().unwrap_or_default();
        match decode::parse_duration(text) {
            Some(ns) => ns,
            None => {
                let expected = decode::DURATION_EXPECTED;
                self.error(key.span().start, format!("interval: found {text:?}, {expected}"));
                INTERVAL_NS
            }
        }
    }

    /// Absence of rules that do not set it.
    fn absence(&mut self, root: &DeTable<'_>) -> AbsenceKey {
        let default = AbsenceKey::Switch(true);
        let Some((key, value)) = root.iter().find(|(key, _)| key.get_ref() == "absence") else {
            return default;
        };
        let found = AbsenceKey::deserialize(ValueDeserializer::from(value.clone()));
        let checked = found
            .map_err(|error| error.message().to_owned())
            .and_then(|table| table.check("", 1).map(|_| table));
        checked.unwrap_or_else(|cause| {
            self.error(key.span().start, cause);
            default
        })
    }

    fn rule_tables<'t, 'v>(&mut self, root: &'t DeTable<'v>) -> &'t [Spanned<DeValue<'v>>] {
        let Some((key, value)) = root.iter().find(|(key, _)| key.get_ref() == "rule") else {
            return &[];
        };
        match value.get_ref() {
            DeValue::Array(tables) if tables.len() <= RULES_MAX => tables,
            DeValue::Array(tables) => {
                let found = tables.len();
                let limit = format!("limit of {RULES_MAX} rules exceeded ({found})");
                self.error(key.span().start, limit + "; split the file");
                &[]
            }
            _ => {
                self.error(key.span().start, "rule is not an array of tables; write [[rule]]");
                &[]
            }
        }
    }

    fn rule(&mut self, value: &Spanned<DeValue<'_>>, context: &RuleContext<'_>) -> Option<Rule> {
        let start = value.span().start;
        let Some(table) = value.get_ref().as_table() else {
            self.error(start, "rule is not a table; write [[rule]]");
            return None;
        };
        let (mut fields, mut unknown_keys) = (table.clone(), 0);
        let table = loop {
            let table = Spanned::new(value.span(), fields.clone());
            let error = match RuleTable::deserialize(Deserializer::from(table)) {
                Ok(table) => break table,
                Err(error) => error,
            };
            let byte = error.span().map_or(start, |span| span.start);
            self.error(byte, with_remedy(error.message()));
            // The others are checked as if the key were the one that was meant.
            let near = nearest_key(error.message())?;
            if !replace_key(&mut fields, byte, near) {
                return None;
            }
            // Each of them costs a copy of the table.
            unknown_keys += 1;
            if unknown_keys == UNKNOWN_KEYS_MAX {
                self.error(byte, "too many unknown keys; others of this rule are not told");
                return None;
            }
        };
        let has_unknown_keys = unknown_keys > 0;
        let checked = table.check(context, has_unknown_keys).map_err(|problems| {
            for TableProblem { byte, message } in problems {
                self.error(byte, message);
            }
        });
        let checked = checked.ok().filter(|_| !has_unknown_keys)?;
        let name = table.name.get_ref().clone();
        self.check_texts(start, &name, &table.labels, &checked.settings.annotations)?;
        Some(Rule {
            position: self.lines.position(self.text, start),
            name,
            expression: checked.expression,
            labels: table.labels,
            kind: RuleKind::Alerting(checked.settings),
        })
    }

    /// Checks labels and templates. `None` if there is a problem.
    fn check_texts(
        &mut self,
        start: usize,
        rule: &str,
        labels: &LabelMap,
        annotations: &LabelMap,
    ) -> Option<()> {
        if let Some(reserved) =
            ["__name__", "alertname", ABSENCE_LABEL].iter().find(|it| labels.contains_key(**it))
        {
            self.error(start, format!("label {reserved:?} of rule {rule:?} is reserved"));
            return None;
        }
        for (name, text) in labels.iter().chain(annotations) {
            if let Err(cause) = check_alert_text(rule, text) {
                self.error(start, format!("cannot parse template of {name:?}: {cause}"));
                return None;
            }
        }
        Some(())
    }

    /// Leaves out rules whose name another one has.
    fn without_duplicates(&mut self, rules: Vec<Rule>) -> Vec<Rule> {
        let mut first_uses: HashMap<String, FilePosition> = HashMap::new();
        let mut unique = Vec::with_capacity(rules.len());
        for rule in rules {
            if let Some(first) = first_uses.get(&rule.name) {
                let name = &rule.name;
                let message = format!("rule {name:?} repeated; the first one is at {first}");
                self.problems.error(rule.position, message);
                continue;
            }
            first_uses.insert(rule.name.clone(), rule.position);
            unique.push(rule);
        }
        unique
    }
}

/// Rewrites serde's "unknown field `x`, expected one of `a`, `b`" with the nearest key, and
/// "missing field `x`" with what to add.
fn with_remedy(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    match quoted.next() {
        Some(found) if message.starts_with("unknown field") => {
            unknown_name("key", found, &quoted.collect::<Vec<_>>())
        }
        Some(key) if message.starts_with("missing field") => {
            let line = match key {
                "severity" => "severity = 2 (1 is the worst, 5 the mildest)".to_owned(),
                other => format!("{other} = \"…\""),
            };
            format!("missing key {key:?}; add {line}")
        }
        _ => message.to_owned(),
    }
}

/// The key that was meant by an unknown one, or none that is near; `None` of another error.
fn nearest_key(message: &str) -> Option<Option<&str>> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let found = quoted.next().filter(|_| message.starts_with("unknown field"))?;
    Some(nearest_name(found, quoted))
}

/// Renames the key at a byte of the file, or removes it. `false` if there is none.
fn replace_key(table: &mut DeTable<'_>, byte: usize, name: Option<&str>) -> bool {
    let key = table.keys().find(|key| key.span().start == byte).cloned();
    let Some(key) = key else {
        return table.iter_mut().any(|(_, value)| match value.get_mut() {
            DeValue::Table(table) => replace_key(table, byte, name),
            DeValue::Array(values) => values.iter_mut().any(|value| match value.get_mut() {
                DeValue::Table(table) => replace_key(table, byte, name),
                _ => false,
            }),
            _ => false,
        });
    };
    let (Some(value), Some(name)) = (table.remove(&key), name) else { return true };
    if !table.keys().any(|known| known.get_ref() == name) {
        table.insert(Spanned::new(key.span(), Cow::Owned(name.to_owned())), value);
    }
    true
}

/// Byte offsets of the lines of a text.
struct LineStarts(Vec<usize>);

impl LineStarts {
    fn new(text: &str) -> LineStarts {
        let after_feeds = text.match_indices('\n').map(|(at, _)| at + 1);
        LineStarts(std::iter::once(0).chain(after_feeds).collect())
    }

    fn position(&self, text: &str, byte: usize) -> FilePosition {
        let line = self.0.partition_point(|start| *start <= byte).max(1);
        let start = self.0[line - 1];
        let column = text.get(start..byte).map_or(0, |before| before.chars().count()) + 1;
        FilePosition { line, column }
    }
}
