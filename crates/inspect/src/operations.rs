//! In-flight operations: collected from processes, sorted by age, grouped.

use shm::snapshot::{MetricValue, ProcessSeries};

use crate::reference_time::ReferenceTime;
use render::text::escape_control;
use render::value_formatter::count;
use render::{table::format_table, time::format_ns};

/// In-flight operation of a process.
#[derive(Clone, Debug)]
pub(crate) struct OpenOperation {
    /// Name and pid.
    pub(crate) process: String,
    /// Name of its metric.
    pub(crate) metric: String,
    /// Labels of the metric, then tags of the operation.
    pub(crate) tags: Vec<(String, String)>,
    /// Number of labels in `tags`.
    pub(crate) labels: usize,
    /// Number given by the program.
    pub(crate) number: u64,
    /// `None` if the reference time is unknown.
    pub(crate) age_ns: Option<u64>,
}

impl OpenOperation {
    fn age(&self) -> String {
        self.age_ns.map_or_else(|| "unknown".to_owned(), |age| format_ns(age as f64))
    }

    /// Value of a tag or label; `metric` and `process` are available too, unless the program uses
    /// these names itself.
    fn tag(&self, name: &str) -> Option<&str> {
        let tag = self.tags.iter().rev().find(|tag| tag.0 == name).map(|tag| &tag.1[..]);
        tag.or(match name {
            "metric" => Some(&self.metric),
            "process" => Some(&self.process),
            _ => None,
        })
    }
}

/// In-flight operations of several processes.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    /// Oldest first.
    pub(crate) list: Vec<OpenOperation>,
    /// Operations that are only counted: the table was full when they started.
    pub(crate) untracked: u64,
    /// Number of tables.
    pub tables: usize,
    /// Number of operations left out because of their age.
    pub(crate) too_young: u64,
}

impl Operations {
    /// Adds the in-flight operations of a process.
    pub(crate) fn add(&mut self, process: &str, metrics: &[ProcessSeries], as_of: &ReferenceTime) {
        for metric in metrics {
            let MetricValue::InFlight(of) = &metric.value else { continue };
            self.tables += 1;
            self.untracked += of.count_untracked();
            self.list.extend(of.operations.iter().map(|operation| OpenOperation {
                process: process.to_owned(),
                metric: metric.name.clone(),
                tags: metric.labels.iter().chain(&operation.tags).cloned().collect(),
                labels: metric.labels.len(),
                number: operation.number,
                age_ns: as_of.age_ns(operation.start_ns),
            }));
        }
        model::sort::by_key(&mut self.list, |open| std::cmp::Reverse(open.age_ns));
    }

    /// Removes younger operations. Operations of unknown age stay.
    pub fn retain_older_than(&mut self, least_ns: u64) {
        let before = self.list.len();
        self.list.retain(|open| open.age_ns.is_none_or(|age| age >= least_ns));
        self.too_young += (before - self.list.len()) as u64;
    }

    /// Number of operations, listed or not.
    pub(crate) fn count(&self) -> u64 {
        self.list.len() as u64 + self.untracked
    }

    /// Age of the oldest operation.
    pub(crate) fn oldest_age(&self) -> String {
        self.list.first().map_or_else(String::new, OpenOperation::age)
    }

    /// Groups by the value of a tag, largest first; operations without the tag form a group.
    pub(crate) fn groups(&self, by: &str) -> Vec<OperationGroup> {
        let mut groups: std::collections::HashMap<Option<&str>, Vec<Option<u64>>> =
            Default::default();
        for open in &self.list {
            groups.entry(open.tag(by)).or_default().push(open.age_ns);
        }
        let group = |(value, mut ages_ns): (Option<&str>, Vec<Option<u64>>)| {
            model::sort::by(&mut ages_ns, Ord::cmp);
            let (middle, last) = ((ages_ns.len() - 1) / 2, ages_ns.len() - 1);
            OperationGroup {
                value: value.map(str::to_owned),
                count: ages_ns.len() as u64,
                p50_ns: ages_ns[middle],
                oldest_ns: ages_ns[last],
            }
        };
        let mut groups: Vec<OperationGroup> = groups.into_iter().map(group).collect();
        model::sort::by(&mut groups, |a, b| {
            b.count.cmp(&a.count).then_with(|| a.value.cmp(&b.value))
        });
        groups
    }

    /// Groups as a table.
    pub(crate) fn group_table(&self, by: &str) -> String {
        let age =
            |ns: Option<u64>| ns.map_or_else(|| "unknown".to_owned(), |ns| format_ns(ns as f64));
        let mut rows =
            vec![[escape_control(by), "count".into(), "p50 of ages".into(), "oldest".into()]];
        for group in self.groups(by) {
            let value = group.value.unwrap_or_else(|| format!("(no {by})"));
            rows.push([
                escape_control(&value),
                count(group.count),
                age(group.p50_ns),
                age(group.oldest_ns),
            ]);
        }
        if self.untracked > 0 {
            let unknown = || "unknown".to_owned();
            rows.push(["(untracked)".into(), count(self.untracked), unknown(), unknown()]);
        }
        format_table(&rows, [false, true, true, true])
    }

    /// Oldest operations as a table.
    pub(crate) fn oldest_table(&self, most: usize) -> String {
        let mut rows = vec![["age", "process", "metric", "number", "tags"].map(str::to_owned)];
        for open in self.list.iter().take(most) {
            let tags = open.tags.iter().map(|(name, value)| format!("{name}={value:?}"));
            let tags = tags.collect::<Vec<_>>().join(" ");
            let number = open.number.to_string();
            rows.push([
                open.age(),
                escape_control(&open.process),
                escape_control(&open.metric),
                number,
                escape_control(&tags),
            ]);
        }
        format_table(&rows, [true, false, false, true, false])
    }

    /// Operations that the tables leave out, as sentences.
    pub(crate) fn omissions(&self, shown_count: usize) -> Vec<String> {
        let more = self.list.len().saturating_sub(shown_count) as u64;
        let parts = [
            (more, "more are not listed here; --by TAG counts them all"),
            (self.too_young, "younger ones are left out"),
            (
                self.untracked,
                "more started while their table was full: their age and tags are unknown",
            ),
        ];
        let parts = parts.into_iter().filter(|(n, _)| *n > 0);
        parts.map(|(n, what)| format!("  {} {what}", count(n))).collect()
    }
}

/// Operations with one value of a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperationGroup {
    /// The value of the tag; `None` for operations without it.
    pub(crate) value: Option<String>,
    /// Number of operations.
    pub(crate) count: u64,
    pub(crate) p50_ns: Option<u64>,
    pub(crate) oldest_ns: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_include_untagged_operations() {
        let open = |device: Option<&str>, age_ns| OpenOperation {
            process: "db".into(),
            metric: "io".into(),
            tags: device
                .map(|device| ("device".to_owned(), device.to_owned()))
                .into_iter()
                .collect(),
            labels: 0,
            number: 1,
            age_ns,
        };
        let list = vec![open(Some("sda"), Some(5)), open(None, None), open(Some("sda"), Some(9))];
        let mut operations = Operations { list, untracked: 3, tables: 1, too_young: 0 };
        let groups = operations.groups("device");
        let sda = OperationGroup {
            value: Some("sda".into()),
            count: 2,
            p50_ns: Some(5),
            oldest_ns: Some(9),
        };
        let none = OperationGroup { value: None, count: 1, p50_ns: None, oldest_ns: None };
        assert_eq!(groups, [sda, none]);
        assert_eq!((operations.groups("process").len(), operations.count()), (1, 6));
        operations.retain_older_than(6);
        assert_eq!((operations.list.len(), operations.too_young), (2, 1));
    }
}
