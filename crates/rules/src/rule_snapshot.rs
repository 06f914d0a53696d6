//! Stored state of rule groups: text, one fact per line, for a file that is replaced atomically.
//!
//! ```text
//! topdeck alert states 5
//! group FILE NAME EVALUATED MISSED
//! clock_step FROM UNTIL REACHED     of the preceding group
//! clock_gap BEFORE AFTER            of the preceding group
//! clock_ahead FROM UNTIL            of the preceding group
//! rule NAME TRANSITIONS             of the preceding group
//! rows_after TIME                   of the preceding rule
//! alert STATE VALUE ACTIVE FIRED RESOLVED SENT VALID KEEP UNKNOWN TRANSITION
//! began TIME                        of the preceding alert
//! unknown_reported TIME             of the preceding alert
//! acknowledged AT UNTIL BY NOTE     of the preceding alert
//! mirrored AT UNTIL BY NOTE URL     of the preceding alert
//! mirrored_ended AT                 of the preceding alert
//! acknowledged_severity SEVERITY    of the preceding alert
//! criterion INDEX SEVERITY LOWER ESTIMATE UPPER THRESHOLD UNIT CHANGED    of the preceding alert
//! flaps CHANGES FIRING
//! written
//! label NAME VALUE                  of the preceding rule, alert, flaps or written line
//! series NAME VALUE                 of the preceding alert
//! annotation NAME VALUE             of the preceding alert
//! checksum CRC                      CRC-32C of all preceding lines, 8 hexadecimal digits
//! ```
//! `docs/formats/alert-states.md` specifies the format.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::str::FromStr;

use hist::Bracket;
use model::text_file::{checksum_line, escape_word, split_last_line, split_words, unescape_word};
use query::LabelSet;

use crate::alert_acknowledgement::AlertAcknowledgements;
use crate::alert_table::{Alert, AlertState, AlertTable, CriterionMatch};
use crate::flap_counter::FlapCounter;
use crate::own::{ClockStepBack, ClockSteps, EvaluationGap, RowsAhead};
use crate::rule_file::LabelMap;

const TITLE: &str = "topdeck alert states ";
/// Format version that is written.
pub const SNAPSHOT_VERSION: u32 = 5;
/// Oldest version that is read: it has no line `criterion`. Up to version 2, there are no lines
/// `rows_after` and `began`, up to version 3 no lines `unknown_reported`, `mirrored` and
/// `acknowledged_severity`, and up to version 4 no lines `clock_step`, `clock_gap`, `clock_ahead`
/// and `mirrored_ended`.
const OLDEST_VERSION: u32 = 1;

/// State of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupSnapshot {
    /// Name of the file.
    pub file: String,
    /// Name of the group.
    pub name: String,
    /// Time of the last iteration.
    pub last_evaluation_ns: Option<i64>,
    /// Iterations that were due and did not take place.
    pub missed_iterations: u64,
    pub(crate) clock_steps: ClockSteps,
    pub(crate) rules: Vec<RuleSnapshot>,
}

/// State of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RuleSnapshot {
    pub(crate) name: String,
    pub(crate) labels: LabelMap,
    pub(crate) table: AlertTable,
    pub(crate) written: BTreeSet<LabelSet>,
}

/// Why stored states cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The title is missing: not a file of alert states.
    #[error("cannot read alert states: found no title, expected {TITLE:?}")]
    Title,
    /// A newer topdeck wrote it.
    #[error("cannot read alert states: found version {found}, expected {SNAPSHOT_VERSION}")]
    Version {
        /// Version of the file.
        found: String,
    },
    /// The file is damaged.
    #[error("cannot read alert states: the checksum does not match")]
    Checksum,
    /// The writer has a bug.
    #[error("cannot read alert states: line {line} is invalid")]
    Line {
        /// Line, from 1.
        line: usize,
    },
}

/// Text of the states of all groups.
pub fn encode_snapshots(groups: &[GroupSnapshot]) -> String {
    let mut text = format!("{TITLE}{SNAPSHOT_VERSION}\n");
    groups.iter().for_each(|group| write_group(&mut text, group));
    let checksum = checksum_line(&text);
    text + &checksum
}

/// States of all groups from their text.
pub fn decode_snapshots(text: &str) -> Result<Vec<GroupSnapshot>, SnapshotError> {
    let (body, last) = split_last_line(text);
    let title = body.lines().next().and_then(|line| line.strip_prefix(TITLE));
    let version = title.ok_or(SnapshotError::Title)?;
    if !(OLDEST_VERSION..=SNAPSHOT_VERSION).any(|known| version == known.to_string()) {
        return Err(SnapshotError::Version { found: version.to_owned() });
    }
    if last != checksum_line(body) {
        return Err(SnapshotError::Checksum);
    }
    let mut reader = SnapshotReader::default();
    for (index, line) in body.lines().enumerate().skip(1) {
        reader.read_line(line).ok_or(SnapshotError::Line { line: index + 1 })?;
    }
    let line = body.lines().count();
    reader.finish_item().ok_or(SnapshotError::Line { line })?;
    Ok(reader.groups)
}

fn write_group(text: &mut String, group: &GroupSnapshot) {
    // Writing to a string does not fail.
    _ = writeln!(
        text,
        "group {} {} {} {}",
        escape_word(&group.file),
        escape_word(&group.name),
        optional(group.last_evaluation_ns),
        group.missed_iterations
    );
    let ClockSteps { back, gap, ahead } = group.clock_steps;
    if let Some(ClockStepBack { from_ns, until_ns, reached_ns }) = back {
        _ = writeln!(text, "clock_step {from_ns} {until_ns} {reached_ns}");
    }
    if let Some(EvaluationGap { before_ns, after_ns }) = gap {
        _ = writeln!(text, "clock_gap {before_ns} {after_ns}");
    }
    if let Some(RowsAhead { from_ns, until_ns }) = ahead {
        _ = writeln!(text, "clock_ahead {from_ns} {until_ns}");
    }
    for rule in &group.rules {
        _ = writeln!(text, "rule {} {}", escape_word(&rule.name), rule.table.transitions);
        write_labels(text, "label", rule.labels.iter());
        if let Some(time_ns) = rule.table.rows_after_ns {
            _ = writeln!(text, "rows_after {time_ns}");
        }
        for (labels, alert) in &rule.table.alerts {
            write_alert(text, labels, alert);
        }
        for (labels, counter) in &rule.table.flapping {
            _ = writeln!(text, "flaps {:x} {}", counter.changes, u8::from(counter.is_firing));
            write_labels(text, "label", labels.iter());
        }
        for labels in &rule.written {
            text.push_str("written\n");
            write_labels(text, "label", labels.iter());
        }
    }
}

fn write_alert(text: &mut String, labels: &LabelSet, alert: &Alert) {
    _ = writeln!(
        text,
        "alert {} {:016x} {} {} {} {} {} {} {} {}",
        alert.state.text(),
        alert.value.to_bits(),
        alert.active_at_ns,
        optional(alert.fired_at_ns),
        optional(alert.resolved_at_ns),
        optional(alert.last_sent_at_ns),
        optional(alert.valid_until_ns),
        optional(alert.keep_firing_since_ns),
        optional(alert.unknown_since_ns),
        alert.transition
    );
    write_labels(text, "label", labels.iter());
    write_labels(text, "series", alert.series.iter());
    write_labels(text, "annotation", alert.annotations.iter());
    if alert.began_ns != alert.active_at_ns {
        _ = writeln!(text, "began {}", alert.began_ns);
    }
    if let Some(time_ns) = alert.unknown_reported_at_ns {
        _ = writeln!(text, "unknown_reported {time_ns}");
    }
    alert.acknowledgements.write_lines(text);
    if let Some(severity) = alert.acknowledged_severity {
        _ = writeln!(text, "acknowledged_severity {severity}");
    }
    if let Some(CriterionMatch { criterion, severity, value, threshold, unit }) = &alert.matched {
        let [lower, estimate, upper] =
            [value.lower, value.estimate, value.upper].map(|number| number.to_bits());
        let threshold = threshold.map_or("-".to_owned(), |it| format!("{:016x}", it.to_bits()));
        let changed = optional(alert.severity_changed_at_ns);
        let unit = escape_word(unit);
        _ = writeln!(
            text,
            "criterion {criterion} {severity} {lower:016x} {estimate:016x} {upper:016x} \
             {threshold} {unit} {changed}"
        );
    }
}

fn write_labels<T: AsRef<str>>(
    text: &mut String,
    keyword: &str,
    labels: impl Iterator<Item = (T, T)>,
) {
    for (name, value) in labels {
        let (name, value) = (escape_word(name.as_ref()), escape_word(value.as_ref()));
        _ = writeln!(text, "{keyword} {name} {value}");
    }
}

fn optional(number: Option<i64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn parse_optional(word: &str) -> Option<Option<i64>> {
    match word {
        "-" => Some(None),
        word => parse_number(word).map(Some),
    }
}

/// Decimal number without a plus sign.
fn parse_number<T: FromStr>(word: &str) -> Option<T> {
    if word.starts_with('+') { None } else { word.parse().ok() }
}

/// Item whose labels are being read.
#[derive(Default)]
enum SnapshotItem {
    #[default]
    None,
    Rule,
    Alert(Box<Alert>),
    Flaps(FlapCounter),
    Written,
}

#[derive(Default)]
struct SnapshotReader {
    groups: Vec<GroupSnapshot>,
    item: SnapshotItem,
    labels: LabelMap,
    series: LabelMap,
}

impl SnapshotReader {
    fn read_line(&mut self, line: &str) -> Option<()> {
        let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
        match keyword {
            "label" => insert(&mut self.labels, rest),
            "series" => match &self.item {
                SnapshotItem::Alert(_) => insert(&mut self.series, rest),
                _ => None,
            },
            "annotation" => match &mut self.item {
                SnapshotItem::Alert(alert) => insert(&mut alert.annotations, rest),
                _ => None,
            },
            "began" => {
                let SnapshotItem::Alert(alert) = &mut self.item else { return None };
                alert.began_ns = parse_number(rest)?;
                Some(())
            }
            "unknown_reported" => {
                let SnapshotItem::Alert(alert) = &mut self.item else { return None };
                alert.unknown_reported_at_ns = Some(parse_number(rest)?);
                Some(())
            }
            "acknowledged_severity" => {
                let SnapshotItem::Alert(alert) = &mut self.item else { return None };
                alert.acknowledged_severity = Some(parse_number(rest)?);
                Some(())
            }
            "clock_step" | "clock_gap" | "clock_ahead" => {
                let group = self.groups.last_mut().filter(|group| group.rules.is_empty())?;
                read_clock(&mut group.clock_steps, keyword, rest)
            }
            "rows_after" => {
                let SnapshotItem::Rule = &self.item else { return None };
                let rule = self.groups.last_mut()?.rules.last_mut()?;
                rule.table.rows_after_ns = Some(parse_number(rest)?);
                Some(())
            }
            "acknowledged" | "mirrored" | "mirrored_ended" => {
                let SnapshotItem::Alert(alert) = &mut self.item else { return None };
                alert.acknowledgements.read_line(keyword, rest)
            }
            "criterion" => {
                let SnapshotItem::Alert(alert) = &mut self.item else { return None };
                let (matched, changed_at_ns) = parse_criterion(rest)?;
                alert.matched = Some(matched);
                alert.severity_changed_at_ns = changed_at_ns;
                Some(())
            }
            _ => {
                self.finish_item()?;
                self.begin_item(keyword, rest)
            }
        }
    }

    fn begin_item(&mut self, keyword: &str, rest: &str) -> Option<()> {
        match keyword {
            "group" => {
                let [file, name, evaluated, missed] = split_words(rest)?;
                self.groups.push(GroupSnapshot {
                    file: unescape_word(file)?,
                    name: unescape_word(name)?,
                    last_evaluation_ns: parse_optional(evaluated)?,
                    missed_iterations: parse_number(missed)?,
                    clock_steps: ClockSteps::default(),
                    rules: Vec::new(),
                });
            }
            "rule" => {
                let [name, transitions] = split_words(rest)?;
                let table =
                    AlertTable { transitions: parse_number(transitions)?, ..Default::default() };
                let name = unescape_word(name)?;
                let rule = RuleSnapshot { name, table, ..RuleSnapshot::default() };
                self.groups.last_mut()?.rules.push(rule);
                self.item = SnapshotItem::Rule;
            }
            "alert" => self.item = SnapshotItem::Alert(Box::new(parse_alert(rest)?)),
            "flaps" => {
                let [changes, firing] = split_words(rest)?;
                let is_firing = match firing {
                    "0" => false,
                    "1" => true,
                    _ => return None,
                };
                let changes = u32::from_str_radix(changes, 16).ok()?;
                self.item = SnapshotItem::Flaps(FlapCounter::from_stored(changes, is_firing)?);
            }
            "written" if rest.is_empty() => self.item = SnapshotItem::Written,
            _ => return None,
        }
        Some(())
    }

    /// Adds the item with its labels to the rule. Only a rule may have the labels of another one.
    fn finish_item(&mut self) -> Option<()> {
        let labels = std::mem::take(&mut self.labels);
        let series = std::mem::take(&mut self.series);
        let item = std::mem::take(&mut self.item);
        if matches!(item, SnapshotItem::None) {
            return labels.is_empty().then_some(());
        }
        let rule = self.groups.last_mut()?.rules.last_mut()?;
        if matches!(item, SnapshotItem::Rule) {
            rule.labels = labels;
            return Some(());
        }
        let labels = LabelSet::new(labels);
        let is_new = match item {
            SnapshotItem::Alert(mut alert) => {
                alert.series = LabelSet::new(series);
                rule.table.alerts.insert(labels, *alert).is_none()
            }
            SnapshotItem::Flaps(counter) => rule.table.flapping.insert(labels, counter).is_none(),
            _ => rule.written.insert(labels),
        };
        is_new.then_some(())
    }
}

/// Reads a line of the clock of a group.
fn read_clock(steps: &mut ClockSteps, keyword: &str, rest: &str) -> Option<()> {
    if keyword == "clock_step" {
        let [from, until, reached] = split_words(rest)?;
        steps.back = Some(ClockStepBack {
            from_ns: parse_number(from)?,
            until_ns: parse_number(until)?,
            reached_ns: parse_number(reached)?,
        });
        return Some(());
    }
    let [first, last] = split_words(rest)?;
    let (first, last) = (parse_number(first)?, parse_number(last)?);
    match keyword {
        "clock_gap" => steps.gap = Some(EvaluationGap { before_ns: first, after_ns: last }),
        _ => steps.ahead = Some(RowsAhead { from_ns: first, until_ns: last }),
    }
    Some(())
}

fn parse_alert(rest: &str) -> Option<Alert> {
    let [state, value, active, fired, resolved, sent, valid, keep, unknown, transition] =
        split_words(rest)?;
    let states = [AlertState::Pending, AlertState::Firing, AlertState::Inactive];
    Some(Alert {
        state: states.into_iter().find(|known| known.text() == state)?,
        annotations: LabelMap::new(),
        series: LabelSet::default(),
        value: parse_bits(value)?,
        active_at_ns: parse_number(active)?,
        began_ns: parse_number(active)?,
        fired_at_ns: parse_optional(fired)?,
        resolved_at_ns: parse_optional(resolved)?,
        last_sent_at_ns: parse_optional(sent)?,
        valid_until_ns: parse_optional(valid)?,
        keep_firing_since_ns: parse_optional(keep)?,
        unknown_since_ns: parse_optional(unknown)?,
        unknown_reported_at_ns: None,
        acknowledgements: AlertAcknowledgements::default(),
        acknowledged_severity: None,
        transition: parse_number(transition)?,
        matched: None,
        severity_changed_at_ns: None,
        is_held: false,
    })
}

/// Criterion, and when the severity changed.
fn parse_criterion(rest: &str) -> Option<(CriterionMatch, Option<i64>)> {
    let [index, severity, lower, estimate, upper, threshold, unit, changed] = split_words(rest)?;
    let matched = CriterionMatch {
        criterion: parse_number(index)?,
        severity: parse_number(severity).filter(|severity| (1..=5).contains(severity))?,
        value: Bracket {
            lower: parse_bits(lower)?,
            estimate: parse_bits(estimate)?,
            upper: parse_bits(upper)?,
        },
        threshold: match threshold {
            "-" => None,
            word => Some(parse_bits(word)?),
        },
        unit: unescape_word(unit)?,
    };
    Some((matched, parse_optional(changed)?))
}

fn parse_bits(word: &str) -> Option<f64> {
    u64::from_str_radix(word, 16).ok().map(f64::from_bits)
}

fn insert(labels: &mut LabelMap, rest: &str) -> Option<()> {
    let [name, value] = split_words(rest)?;
    match labels.insert(unescape_word(name)?, unescape_word(value)?) {
        None => Some(()),
        Some(_) => None,
    }
}
