//! OpenSLO v1 files (`apiVersion: openslo/v1`), as SLOs of topdeck.
//!
//! Imported: kinds `SLO` and `SLI`, with `ratioMetric` (`good` or `bad`, and `total`) or
//! `thresholdMetric`, a rolling window or one of the calendar, and the budgeting method
//! `Occurrences`. A `metricSource` has a selector of topdeck in `spec.query` or `spec.selector`.
//! Everything else that would change the result is an error with its position. Kinds that say
//! nothing about the objective (`Service`, `DataSource`) are not used. Source: the specification in
//! github.com/OpenSLO/OpenSLO, version 1.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::{Slo, SloDraft};
use crate::rule_file::{LabelMap, ProblemList, RuleProblem};
use crate::yaml::{FilePosition, YamlNode, YamlValue, parse_yaml};
use crate::yaml_fields::Fields;

/// Maximum size of a file in bytes.
const FILE_BYTES_MAX: usize = 4 << 20;
const VERSION: &str = "openslo/v1";

/// Objects of a file.
struct SloFileReader {
    problems: ProblemList,
    /// Specs of SLIs by name; `None` if several have the name.
    indicators: BTreeMap<String, Option<Arc<YamlNode>>>,
    slos: Vec<Slo>,
}

/// Keys of an SLO that its objectives share.
struct SloHeader {
    name: String,
    description: String,
    labels: LabelMap,
    period: Option<String>,
    zone: Option<String>,
}

/// SLOs of a file, and its problems by position.
pub fn parse_openslo(file: &str, text: &str) -> (Vec<Slo>, Vec<RuleProblem>) {
    let problems = ProblemList::new(file);
    let mut reader = SloFileReader { problems, indicators: BTreeMap::new(), slos: Vec::new() };
    if text.len() > FILE_BYTES_MAX {
        let found = text.len();
        let limit = format!("limit of {FILE_BYTES_MAX} bytes exceeded ({found}); split the file");
        reader.problems.error(FilePosition { line: 1, column: 1 }, limit);
    } else {
        reader.read(text);
    }
    (reader.slos, reader.problems.into_sorted())
}

/// Documents of a file; each begins on its line of the file.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for (line, content) in text.lines().enumerate() {
        if content.trim_end() == "---" {
            documents.push("\n".repeat(line + 1));
        } else if let Some(last) = documents.last_mut() {
            last.push_str(content);
            last.push('\n');
        }
    }
    documents
}

impl SloFileReader {
    fn read(&mut self, text: &str) {
        let mut specs = Vec::new();
        for document in documents(text) {
            match parse_yaml(&document) {
                Err(error) => self.problems.error(error.position, error.message),
                Ok((root, _)) if matches!(root.value, YamlValue::Null) => {}
                Ok((root, _)) => specs.extend(self.object(&root)),
            }
        }
        for (header, spec) in specs {
            self.slo(header, &spec);
        }
    }

    /// An SLO with its spec; other kinds are kept or reported.
    fn object(&mut self, root: &YamlNode) -> Option<(SloHeader, Arc<YamlNode>)> {
        let keys = ["apiVersion", "kind", "metadata", "spec"];
        let fields = Fields::read(&mut self.problems, root, "object", &keys)?;
        let version = fields.text(&mut self.problems, "apiVersion").unwrap_or_default();
        if version != VERSION {
            let position = fields.value_position("apiVersion");
            let message = format!("apiVersion: found {version:?}, expected {VERSION:?}");
            self.problems.error(position, message);
            return None;
        }
        let kind = fields.text(&mut self.problems, "kind").unwrap_or_default();
        let position = fields.value_position("kind");
        let spec = child(root, "spec");
        match kind.as_str() {
            "SLO" | "SLI" => {}
            "Service" | "DataSource" => {
                let message = format!("kind {kind} is not used: topdeck queries its own store");
                self.problems.warn(position, message);
                return None;
            }
            "AlertPolicy" | "AlertCondition" | "AlertNotificationTarget" => {
                let message = format!(
                    "kind {kind} is not supported: every SLO has burn-rate alerts, and contacts \
                     are settings of topdeck; remove it"
                );
                self.problems.error(position, message);
                return None;
            }
            other => {
                let message = format!("kind: found {other:?}, expected SLO or SLI");
                self.problems.error(position, message);
                return None;
            }
        }
        let Some(metadata) = child(root, "metadata") else {
            self.problems.error(root.position, format!("{kind} without metadata; set its name"));
            return None;
        };
        let known = ["name", "displayName", "labels", "annotations"];
        let name_position = child(&metadata, "name").map_or(root.position, |name| name.position);
        let metadata = Fields::read(&mut self.problems, &metadata, "metadata", &known)
            .map(|fields| self.header(&fields, root))?;
        let Some(spec) = spec else {
            self.problems.error(root.position, format!("{kind} without a spec"));
            return None;
        };
        if kind == "SLI" {
            self.indicator_spec(metadata.name, name_position, spec);
            return None;
        }
        Some((metadata, spec))
    }

    fn indicator_spec(&mut self, name: String, position: FilePosition, spec: Arc<YamlNode>) {
        match self.indicators.entry(name) {
            Entry::Vacant(new) => drop(new.insert(Some(spec))),
            Entry::Occupied(mut known) => {
                let message = format!("SLI {:?} repeated; rename it", known.key());
                self.problems.error(position, message);
                known.insert(None);
            }
        }
    }

    fn header(&mut self, fields: &Fields<'_>, root: &YamlNode) -> SloHeader {
        let name = fields.text(&mut self.problems, "name").unwrap_or_default();
        if name.is_empty() {
            self.problems.error(root.position, "object without a name; set metadata.name");
        }
        let labels = fields.labels(&mut self.problems, "labels", "label");
        let description = fields.text(&mut self.problems, "displayName").unwrap_or_default();
        SloHeader { name, description, labels, period: None, zone: None }
    }

    fn slo(&mut self, mut header: SloHeader, spec: &YamlNode) {
        let keys = [
            "description",
            "service",
            "indicator",
            "indicatorRef",
            "timeWindow",
            "budgetingMethod",
            "objectives",
            "alertPolicies",
        ];
        let before = self.problems.error_count();
        let Some(fields) = Fields::read(&mut self.problems, spec, "SLO spec", &keys) else {
            return;
        };
        if let Some(description) = fields.text(&mut self.problems, "description") {
            header.description = description;
        }
        let method = fields.text(&mut self.problems, "budgetingMethod").unwrap_or_default();
        if method != "Occurrences" {
            let message = format!(
                "budgetingMethod: found {method:?}, expected \"Occurrences\": topdeck counts events"
            );
            self.problems.error(fields.value_position("budgetingMethod"), message);
        }
        if !fields.list(&mut self.problems, "alertPolicies").is_empty() {
            let message = "alertPolicies are not supported: every SLO has burn-rate alerts; \
                           remove them";
            self.problems.error(fields.position("alertPolicies"), message);
        }
        self.time_window(&fields, &mut header);
        let indicator = self.indicator(&fields, spec);
        let objectives = fields.list(&mut self.problems, "objectives").to_vec();
        if objectives.is_empty() {
            self.problems.error(fields.position("objectives"), "SLO without objectives; set one");
        }
        let Some(indicator) = indicator.filter(|_| self.problems.error_count() == before) else {
            return;
        };
        if indicator.selector.is_some() && objectives.len() > 1 {
            let message = "an SLO with a thresholdMetric has one objective in topdeck; write an \
                           SLO for each";
            self.problems.error(fields.position("objectives"), message);
            return;
        }
        for (index, objective) in objectives.iter().enumerate() {
            let draft = SloDraft {
                description: header.description.clone(),
                labels: header.labels.clone(),
                period: header.period.clone(),
                zone: header.zone.clone(),
                ..indicator.clone()
            };
            let number = (objectives.len() > 1).then_some(index + 1);
            self.objective(&header.name, number, draft, objective);
        }
    }

    fn time_window(&mut self, fields: &Fields<'_>, header: &mut SloHeader) {
        let windows = fields.list(&mut self.problems, "timeWindow").to_vec();
        let [window] = &windows[..] else {
            let found = windows.len();
            let message = format!("timeWindow: found {found} items, expected 1");
            self.problems.error(fields.position("timeWindow"), message);
            return;
        };
        let keys = ["duration", "isRolling", "calendar"];
        let Some(window_fields) = Fields::read(&mut self.problems, window, "timeWindow", &keys)
        else {
            return;
        };
        let duration = window_fields.text(&mut self.problems, "duration").unwrap_or_default();
        let rolling = window_fields.text(&mut self.problems, "isRolling");
        let is_rolling = rolling.as_deref() == Some("true");
        let Some(calendar) = child(window, "calendar") else {
            if !is_rolling {
                let message = "timeWindow without a calendar needs isRolling: true";
                self.problems.error(window.position, message);
            }
            header.period = Some(duration);
            return;
        };
        if is_rolling {
            let message = "timeWindow needs either isRolling: true or a calendar";
            self.problems.error(window_fields.value_position("isRolling"), message);
        }
        let unit = match duration.as_str() {
            "1M" => "month",
            "1Q" => "quarter",
            "1Y" => "year",
            _ => {
                let message = format!("duration: found {duration:?}, expected 1M, 1Q or 1Y");
                self.problems.error(window_fields.value_position("duration"), message);
                return;
            }
        };
        header.period = Some(unit.to_owned());
        let keys = ["startTime", "timeZone"];
        let Some(calendar) = Fields::read(&mut self.problems, &calendar, "calendar", &keys) else {
            return;
        };
        header.zone = calendar.text(&mut self.problems, "timeZone");
        if let Some(start) = calendar.text(&mut self.problems, "startTime")
            && !is_calendar_start(unit, &start)
        {
            let message = format!(
                "startTime: found {start:?}, expected midnight of the first day of a {unit}"
            );
            self.problems.error(calendar.value_position("startTime"), message);
        }
    }

    /// The indicator's part of a definition.
    fn indicator(&mut self, fields: &Fields<'_>, spec: &YamlNode) -> Option<SloDraft> {
        let inline = child(spec, "indicator").and_then(|indicator| child(&indicator, "spec"));
        let reference = fields.text(&mut self.problems, "indicatorRef");
        let spec = match (inline, reference) {
            (Some(inline), None) => inline,
            (None, Some(name)) => match self.indicators.get(&name) {
                Some(Some(spec)) => Arc::clone(spec),
                Some(None) => {
                    let message = format!("indicatorRef: several SLIs are named {name:?}");
                    self.problems.error(fields.value_position("indicatorRef"), message);
                    return None;
                }
                None => {
                    let message = format!("indicatorRef: no SLI {name:?} in this file");
                    self.problems.error(fields.value_position("indicatorRef"), message);
                    return None;
                }
            },
            _ => {
                let message = "SLO needs an indicator with a spec, or an indicatorRef";
                self.problems.error(fields.position("indicator"), message);
                return None;
            }
        };
        let keys = ["description", "thresholdMetric", "ratioMetric"];
        Fields::read(&mut self.problems, &spec, "SLI spec", &keys)?;
        match (child(&spec, "thresholdMetric"), child(&spec, "ratioMetric")) {
            (Some(metric), None) => {
                let (selector, threshold) = self.source(&metric, "thresholdMetric")?;
                Some(SloDraft { selector: Some(selector), threshold, ..SloDraft::default() })
            }
            (None, Some(metric)) => self.ratio(&metric),
            _ => {
                let message = "SLI needs either a thresholdMetric or a ratioMetric";
                self.problems.error(spec.position, message);
                None
            }
        }
    }

    fn ratio(&mut self, metric: &YamlNode) -> Option<SloDraft> {
        let keys = ["counter", "good", "bad", "total"];
        let fields = Fields::read(&mut self.problems, metric, "ratioMetric", &keys)?;
        if fields.text(&mut self.problems, "counter").as_deref() == Some("false") {
            let message = "counter: false is not supported: good and total are counters";
            self.problems.error(fields.value_position("counter"), message);
        }
        let mut selector = |key: &str| {
            let node = child(metric, key)?;
            self.source(&node, key).map(|(selector, _)| selector)
        };
        let (good, bad, total) = (selector("good"), selector("bad"), selector("total"));
        Some(SloDraft { good, bad, total, ..SloDraft::default() })
    }

    /// Selector and threshold of a `metricSource`.
    fn source(&mut self, metric: &YamlNode, what: &str) -> Option<(String, Option<String>)> {
        Fields::read(&mut self.problems, metric, what, &["metricSource"])?;
        let source = child(metric, "metricSource");
        let Some(source) = source else {
            self.problems.error(metric.position, format!("{what} without a metricSource"));
            return None;
        };
        let keys = ["metricSourceRef", "type", "spec"];
        Fields::read(&mut self.problems, &source, "metricSource", &keys)?;
        let Some(spec) = child(&source, "spec") else {
            self.problems.error(source.position, "metricSource without a spec");
            return None;
        };
        let keys = ["query", "selector", "threshold"];
        let fields = Fields::read(&mut self.problems, &spec, "spec of metricSource", &keys)?;
        let threshold = fields.text(&mut self.problems, "threshold");
        let selector = fields.text(&mut self.problems, "selector");
        let query = fields.text(&mut self.problems, "query");
        match (selector, query) {
            (Some(selector), None) | (None, Some(selector)) => Some((selector, threshold)),
            _ => {
                let message = "spec of metricSource needs either a selector or a query";
                self.problems.error(spec.position, message);
                None
            }
        }
    }

    fn objective(
        &mut self,
        name: &str,
        number: Option<usize>,
        mut draft: SloDraft,
        node: &YamlNode,
    ) {
        let keys = ["displayName", "op", "value", "target", "targetPercent"];
        let before = self.problems.error_count();
        let Some(fields) = Fields::read(&mut self.problems, node, "objective", &keys) else {
            return;
        };
        let display = fields.text(&mut self.problems, "displayName");
        draft.name = match (number, display) {
            (None, _) => name.to_owned(),
            (Some(_), Some(display)) => format!("{name} {display}"),
            (Some(number), None) => format!("{name} {number}"),
        };
        let target = fields.text(&mut self.problems, "target");
        let percent = fields.text(&mut self.problems, "targetPercent");
        draft.objective = match (target, percent) {
            (Some(target), None) => Some(target),
            (None, Some(percent)) => Some(format!("{percent}%")),
            _ => {
                let message = "objective needs either target or targetPercent";
                self.problems.error(node.position, message);
                None
            }
        };
        if draft.selector.is_some() {
            let op = fields.text(&mut self.problems, "op").unwrap_or_default();
            if op != "lte" {
                let message = format!("op: found {op:?}, expected \"lte\": good is at most value");
                self.problems.error(fields.value_position("op"), message);
            }
            draft.threshold = draft.threshold.or_else(|| fields.text(&mut self.problems, "value"));
        }
        if self.problems.error_count() > before {
            return;
        }
        match draft.check() {
            Ok(slo) if self.slos.iter().any(|other| other.name == slo.name) => {
                let message = format!("SLO {:?} repeated; rename it", slo.name);
                self.problems.error(node.position, message);
            }
            Ok(slo) => self.slos.push(slo),
            Err(problems) => {
                for problem in problems {
                    self.problems.error(node.position, problem.what);
                }
            }
        }
    }
}

/// Value of a key of a mapping; `None` if it is absent or null.
fn child(node: &YamlNode, key: &str) -> Option<Arc<YamlNode>> {
    let YamlValue::Map(entries) = &node.value else { return None };
    let entry = entries.iter().find(|entry| entry.key == key)?;
    (!matches!(entry.node.value, YamlValue::Null)).then(|| Arc::clone(&entry.node))
}

/// Whether a time such as `2026-01-01 00:00:00` starts a period of the calendar.
fn is_calendar_start(unit: &str, text: &str) -> bool {
    let Ok(time) = text.trim().replacen(' ', "T", 1).parse::<jiff::civil::DateTime>() else {
        return false;
    };
    let is_month_start = time.time() == jiff::civil::Time::midnight() && time.day() == 1;
    is_month_start
        && match unit {
            "quarter" => time.month() % 3 == 1,
            "year" => time.month() == 1,
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use super::super::{Indicator, Period};
    use super::*;

    const THRESHOLD: &str = "\
apiVersion: openslo/v1
kind: SLO
metadata:
  name: checkout
  labels:
    team: shop
spec:
  description: Checkouts are fast
  service: shop
  indicator:
    metadata:
      name: latency
    spec:
      thresholdMetric:
        metricSource:
          type: topdeck
          spec:
            selector: latency{route=\"/checkout\"}
            threshold: 250ms
  timeWindow:
  - duration: 28d
    isRolling: true
  budgetingMethod: Occurrences
  objectives:
  - op: lte
    targetPercent: 99.9
";

    const RATIO: &str = "\
apiVersion: openslo/v1
kind: SLI
metadata: {name: errors}
spec:
  ratioMetric:
    counter: true
    bad: {metricSource: {type: Prometheus, spec: {query: 'requests_total{code=~\"5..\"}'}}}
    total: {metricSource: {type: Prometheus, spec: {query: requests_total}}}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: requests}
spec:
  service: shop
  indicatorRef: errors
  timeWindow:
  - duration: 1M
    calendar: {startTime: 2026-01-01 00:00:00, timeZone: Europe/Berlin}
  budgetingMethod: Occurrences
  objectives:
  - {displayName: strict, target: 0.999}
  - {displayName: loose, target: 0.98}
";

    #[test]
    fn threshold_metric_is_an_slo_of_a_distribution() {
        let (slos, problems) = parse_openslo("a.yaml", THRESHOLD);
        assert_eq!(problems, []);
        let [slo] = &slos[..] else { panic!("{slos:?}") };
        assert_eq!((slo.name.as_str(), slo.objective.share()), ("checkout", 0.999));
        assert_eq!(slo.period, Period::parse("28d", None).unwrap());
        assert_eq!(slo.labels["team"], "shop");
        let Indicator::Threshold { threshold, .. } = &slo.indicator else { panic!("{slo:?}") };
        assert_eq!(threshold.to_string(), "250 ms");
    }

    #[test]
    fn ratio_metric_has_an_slo_for_each_objective() {
        let (slos, problems) = parse_openslo("a.yaml", RATIO);
        assert_eq!(problems, []);
        let names: Vec<&str> = slos.iter().map(|slo| slo.name.as_str()).collect();
        assert_eq!(names, ["requests strict", "requests loose"]);
        assert!(matches!(&slos[0].indicator, Indicator::Ratio { is_good: false, .. }));
        assert!(matches!(slos[0].period, Period::Calendar(..)));
    }

    /// The problem of a text in which a part is replaced, as `line:column: message`.
    #[track_caller]
    fn check(text: &str, part: &str, replacement: &str, expected: &str) {
        assert!(text.contains(part), "{part}");
        let (_, problems) = parse_openslo("a.yaml", &text.replacen(part, replacement, 1));
        let found = problems.iter().map(|it| format!("{}: {}", it.position, it.message));
        let found: Vec<String> = found.collect();
        assert!(found.iter().any(|line| line.starts_with(expected)), "{expected}\n{found:#?}");
    }

    #[test]
    fn what_is_not_supported_is_an_error_with_its_line() {
        check(THRESHOLD, "Occurrences", "Timeslices", "23:20: budgetingMethod: found");
        check(THRESHOLD, "op: lte", "op: gt", "25:9: op: found \"gt\"");
        check(THRESHOLD, "targetPercent: 99.9", "timeSliceTarget: 0.9", "26:5: unknown key");
        check(THRESHOLD, "99.9", "90", "25:5: the alert of the window 1h can never fire");
        check(THRESHOLD, "kind: SLO", "kind: AlertPolicy", "2:7: kind AlertPolicy");
        check(THRESHOLD, "openslo/v1", "openslo/v1alpha", "1:13: apiVersion");
        check(THRESHOLD, "  service: shop", "  alertPolicies: [x]", "9:3: alertPolicies");
        check(THRESHOLD, "28d", "1h", "25:5: period: found 1h");
        check(RATIO, "counter: true", "counter: false", "6:14: counter: false");
        check(RATIO, "indicatorRef: errors", "indicatorRef: x", "15:17: indicatorRef: no SLI");
        check(RATIO, "01-01 00", "01-01 12", "18:27: startTime");
        check(RATIO, "1M", "2M", "17:15: duration: found \"2M\"");
        check(THRESHOLD, "isRolling: true", "isRolling: false", "21:5: timeWindow without a");
    }

    #[test]
    fn nothing_is_overridden_silently() {
        let window = "  timeWindow:\n  - duration: 28d\n    isRolling: true\n";
        check(THRESHOLD, window, "", "8:3: timeWindow: found 0 items, expected 1");
        let two = format!("{window}  - duration: 7d\n    isRolling: true\n");
        check(THRESHOLD, window, &two, "20:3: timeWindow: found 2 items, expected 1");
        let both = "isRolling: true\n    calendar: {startTime";
        let expected = "18:16: timeWindow needs either isRolling: true or a calendar";
        check(RATIO, "calendar: {startTime", both, expected);
        let both = "query: latency\n            threshold: 250ms";
        check(THRESHOLD, "threshold: 250ms", both, "18:13: spec of metricSource needs either");
        let objectives = "  - {op: lte, targetPercent: 99}\n  - op: lte\n";
        let expected = "24:3: an SLO with a thresholdMetric has one objective in topdeck";
        check(THRESHOLD, "  - op: lte\n", objectives, expected);
    }

    #[test]
    fn an_slo_of_a_repeated_sli_is_not_used() {
        let indicator = RATIO.split_once("---\n").expect("two documents").0;
        let (slos, problems) = parse_openslo("a.yaml", &format!("{indicator}---\n{RATIO}"));
        assert_eq!(slos, []);
        let found: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("SLI \"errors\" repeated; rename it"), "{found:?}");
        assert!(found[1].contains("indicatorRef: several SLIs are named \"errors\""), "{found:?}");
    }

    #[test]
    fn services_are_not_used_and_the_empty_file_has_no_slos() {
        let service = "apiVersion: openslo/v1\nkind: Service\nmetadata: {name: x}\nspec: {}\n";
        let (slos, problems) = parse_openslo("a.yaml", service);
        assert_eq!((slos.len(), problems.len()), (0, 1));
        assert_eq!(parse_openslo("a.yaml", ""), (Vec::new(), Vec::new()));
    }
}
