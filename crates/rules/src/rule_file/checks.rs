//! Checks of rules: expressions, templates, names, duplicates.

use std::collections::HashMap;

use query::promql;

use super::presence::presence_expression;
use super::{
    FilePosition, LabelMap, MISSING_DATA_ANNOTATION, MissingData, RuleFileParser, RuleGroup,
};
use crate::template::check_alert_text;
use crate::yaml_fields::Fields;

impl RuleFileParser<'_> {
    /// Expression of a rule, if it is valid.
    pub(super) fn expression(&mut self, fields: &Fields<'_>, what: &str) -> Option<String> {
        let text = fields.text(&mut self.problems, "expr").filter(|text| !text.is_empty());
        let Some(text) = text else {
            self.problems
                .error(fields.position("expr"), format!("{what} has no expression; set expr"));
            return None;
        };
        let position = fields.value_position("expr");
        match promql::parse(&text, self.options) {
            Ok(_) => Some(text),
            Err(error) => {
                let place = error.span().map_or_else(String::new, |span| {
                    let (line, column) = span.line_and_column(&text);
                    format!("line {line}, column {column}: ")
                });
                self.problems.error(position, format!("cannot parse expression: {place}{error}"));
                None
            }
        }
    }

    pub(super) fn check_recording_rule(&mut self, fields: &Fields<'_>, what: &str, name: &str) {
        for key in ["for", "keep_firing_for", "annotations"] {
            if fields.has(key) {
                let message = format!("{what} records and cannot have {key}; remove it");
                self.problems.error(fields.position(key), message);
            }
        }
        let position = fields.value_position("record");
        if name.contains(char::REPLACEMENT_CHARACTER) {
            self.problems.error(position, format!("invalid metric name {name:?}"));
        }
        if name.contains(['{', '}']) {
            let message = format!("metric name {name:?} has braces; move the selector to expr");
            self.problems.error(position, message);
        }
    }

    pub(super) fn check_templates(
        &mut self,
        fields: &Fields<'_>,
        alert: &str,
        labels: &LabelMap,
        annotations: &LabelMap,
    ) {
        for (key, what, map) in
            [("labels", "label", labels), ("annotations", "annotation", annotations)]
        {
            for (name, text) in map {
                if let Err(cause) = check_alert_text(alert, text) {
                    let message = format!("cannot parse template of {what} {name:?}: {cause}");
                    self.problems.error(fields.entry_position(key, name), message);
                }
            }
        }
    }

    pub(super) fn missing_data(
        &mut self,
        setting: Option<&str>,
        expression: &str,
        position: FilePosition,
    ) -> MissingData {
        match setting {
            None | Some("resolve") => MissingData::Resolve,
            Some("hold") => match presence_expression(expression, self.options) {
                Some(presence) => MissingData::Hold { presence },
                None => {
                    let cause = "the expression is not a comparison with a number";
                    let message = format!("cannot hold alerts: {cause}, so data cannot be told");
                    self.problems.error(position, message + " from its absence");
                    MissingData::Resolve
                }
            },
            Some(other) => {
                let message = format!(
                    "{MISSING_DATA_ANNOTATION}: found {other:?}, expected \"hold\" or \"resolve\""
                );
                self.problems.error(position, message);
                MissingData::Resolve
            }
        }
    }

    /// Warns of rules with the same name and labels, which overwrite each other's series.
    pub(super) fn warn_of_duplicates(&mut self, groups: &[RuleGroup]) {
        let mut first_uses: HashMap<(&str, &LabelMap), FilePosition> = HashMap::new();
        for rule in groups.iter().flat_map(|group| &group.rules) {
            match first_uses.get(&(rule.name.as_str(), &rule.labels)) {
                Some(first) => {
                    let name = &rule.name;
                    let message =
                        format!("rule {name:?} has the name and the labels of the rule at {first}");
                    self.problems.warn(rule.position, message);
                }
                None => {
                    first_uses.insert((&rule.name, &rule.labels), rule.position);
                }
            }
        }
    }
}
