//! Samples of an import that the target would drop at once, because they are older than its
//! retention: known before anything is imported.
//!
//! A store drops base samples once their day is rolled up, and rows of rollups by their own rules.
//! So old samples may remain in rollups, or nothing of them may remain.

use std::collections::{BTreeSet, HashMap};

use client::print_message;
use model::{Selector, Series, SeriesId};
use render::text::plural;
use render::time::precise_time_text;
use render::value_formatter;
use report::retention_rule_text;
use serde_json::Value;
use store::{DAY, Resolution, RetentionRule};

use crate::import_target::ImportTarget;

/// Number of resolutions.
const RESOLUTIONS: usize = Resolution::ALL.len();

/// Retention rules of a target.
#[derive(Clone, Debug, Default)]
pub struct TargetRetention {
    rules: Vec<RetentionRule>,
    /// Time of the target.
    now: i64,
}

impl TargetRetention {
    /// Rules of a target; none, with a message, if a server does not tell them.
    pub fn of(target: &ImportTarget) -> TargetRetention {
        match target.retention() {
            Ok(retention) => retention,
            Err(error) => {
                print_message(format_args!(
                    "cannot compare the times with the retention of the server: {error:#}; it \
                     drops samples that are older"
                ));
                TargetRetention::default()
            }
        }
    }

    pub(crate) fn new(rules: Vec<RetentionRule>, now: i64) -> TargetRetention {
        TargetRetention { rules, now }
    }

    /// Of the status of a server; without rules if it is an agent or does not tell them.
    pub(crate) fn of_status(status: &Value, now: i64) -> TargetRetention {
        let rule = |rule: &Value| {
            Some(RetentionRule {
                resolution: Resolution::parse(rule["resolution"].as_str()?)?,
                duration: rule["duration_ns"].as_i64(),
                selector: Selector::parse(rule["selector"].as_str()?).ok()?,
            })
        };
        let rules = status["store"]["retention"].as_array().into_iter().flatten();
        let now = status["now_ns"].as_i64().unwrap_or(now);
        TargetRetention::new(rules.filter_map(rule).collect(), now)
    }

    /// Rule of a series at a resolution, with a duration, by its position.
    fn rule_of(&self, series: &Series, resolution: Resolution) -> Option<(usize, i64)> {
        let mut rules = self.rules.iter().enumerate();
        let found =
            rules.find(|(_, rule)| rule.resolution == resolution && rule.selector.matches(series));
        found.and_then(|(at, rule)| Some((at, rule.duration?)))
    }
}

/// Samples that are older than the retention.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpiredSamples {
    /// Number of them.
    pub(crate) samples: u64,
    /// Number of those of which nothing remains, not even in rollups.
    pub(crate) lost: u64,
    /// Time of the first and of the last one.
    pub(crate) range: Option<(i64, i64)>,
    /// Number of those that are older than the retention of each resolution.
    by_resolution: [u64; RESOLUTIONS],
    /// Positions of the rules.
    rules: BTreeSet<usize>,
}

/// Compares samples with the retention of a target.
pub(crate) struct RetentionCheck<'a> {
    retention: &'a TargetRetention,
    /// Rules of each series by resolution.
    rules: HashMap<SeriesId, [Option<(usize, i64)>; RESOLUTIONS]>,
    expired: ExpiredSamples,
}

impl<'a> RetentionCheck<'a> {
    pub(crate) fn new(retention: &'a TargetRetention) -> RetentionCheck<'a> {
        RetentionCheck { retention, rules: HashMap::new(), expired: ExpiredSamples::default() }
    }

    /// Adds a sample that ends at `end`.
    pub(crate) fn add(&mut self, series: &Series, end: i64) {
        if self.retention.rules.is_empty() {
            return;
        }
        let rules = self.rules.entry(series.id()).or_insert_with(|| {
            Resolution::ALL.map(|resolution| self.retention.rule_of(series, resolution))
        });
        let is_expired = |(resolution, rule): (Resolution, Option<(usize, i64)>)| {
            // A row of a rollup ends with its interval.
            let period = resolution.period().unwrap_or(1);
            let end = end.saturating_add((-end).rem_euclid(period));
            rule.is_some_and(|(_, ns)| end.saturating_add(ns) <= self.retention.now)
        };
        let mut found = [false; RESOLUTIONS];
        for (at, resolution) in Resolution::ALL.into_iter().enumerate() {
            found[at] = is_expired((resolution, rules[at]));
        }
        let Some((rule, _)) = rules[0].filter(|_| found[0]) else { return };
        let expired = &mut self.expired;
        expired.samples += 1;
        expired.lost += u64::from(found.iter().all(|is_expired| *is_expired));
        let (first, last) = expired.range.unwrap_or((end, end));
        expired.range = Some((first.min(end), last.max(end)));
        for (count, is_expired) in expired.by_resolution.iter_mut().zip(found) {
            *count += u64::from(is_expired);
        }
        expired.rules.insert(rule);
    }

    /// Samples that are older than the retention; `None` if there are none.
    pub(crate) fn take(&mut self) -> Option<ExpiredSamples> {
        Some(std::mem::take(&mut self.expired)).filter(|expired| expired.samples > 0)
    }
}

impl ExpiredSamples {
    /// Says how many samples of how many the target would drop, and what remains; returns whether
    /// they are accepted.
    pub(crate) fn report(
        &self,
        (name, total): (&str, u64),
        retention: &TargetRetention,
        is_accepted: bool,
    ) -> bool {
        let is_accepted = is_accepted || self.lost == 0;
        print_message(format_args!("{name}: {}", self.text(total, retention, is_accepted)));
        is_accepted
    }

    fn text(&self, total: u64, retention: &TargetRetention, is_accepted: bool) -> String {
        let (first, last) = self.range.unwrap_or_default();
        let rules = self.rules.iter().filter_map(|at| retention.rules.get(*at));
        let rules: Vec<String> = rules.map(retention_rule_text).collect();
        let mut text = format!(
            "{} of {}, {} to {}, are older than the retention ({}): the store drops them as soon \
             as their days are rolled up",
            value_formatter::count(self.samples),
            plural(total, "sample", "samples"),
            precise_time_text(first),
            precise_time_text(last),
            rules.join(", "),
        );
        let remaining = Resolution::ALL.into_iter().zip(self.by_resolution).skip(1);
        let remaining: Vec<&str> = remaining
            .filter(|(_, count)| *count < self.samples)
            .map(|(resolution, _)| resolution.name())
            .collect();
        if !remaining.is_empty() {
            text.push_str(&format!("; the rollups {} remain", remaining.join(", ")));
        }
        if self.lost > 0 {
            let lost = value_formatter::count(self.lost);
            text.push_str(&format!("; of {lost} of them nothing remains"));
        }
        if !is_accepted {
            let days = retention.now.saturating_sub(first).div_euclid(DAY) + 1;
            text.push_str(&format!(
                "; nothing is imported: raise the retention to at least {days}d (`topdeck store \
                 retention`, or [store] retention of the server), or import with \
                 --accept-retention"
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use model::SeriesKind;
    use serde_json::json;

    use super::*;

    const NOW: i64 = 20_000 * DAY;

    fn retention(rules: &[(Resolution, i64, Selector)]) -> TargetRetention {
        let rules = rules.iter().map(|(resolution, days, selector)| RetentionRule {
            resolution: *resolution,
            duration: Some(days * DAY),
            selector: selector.clone(),
        });
        TargetRetention::new(rules.collect(), NOW)
    }

    /// What is said of samples of two series so many days ago, and whether they are accepted.
    fn check(retention: &TargetRetention, days: &[i64]) -> Option<(String, bool)> {
        let mut check = RetentionCheck::new(retention);
        for (name, day) in
            ["a", "b"].into_iter().flat_map(|name| days.iter().map(move |d| (name, d)))
        {
            let series = Series::new(name, SeriesKind::Gauge).validate().unwrap();
            check.add(&series, NOW - day * DAY);
        }
        let expired = check.take()?;
        let total = 2 * days.len() as u64;
        let is_accepted = expired.report(("file", total), retention, false);
        Some((expired.text(total, retention, is_accepted), is_accepted))
    }

    #[test]
    fn old_samples_whose_rollups_remain_are_told_and_accepted() {
        let kept = retention(&[(Resolution::Base, 30, Selector::All)]);
        assert_eq!(check(&kept, &[1, 29]), None);
        let (text, is_accepted) = check(&kept, &[1, 31, 40]).unwrap();
        assert!(is_accepted);
        assert_eq!(
            text,
            "4 of 6 samples, 2024-08-25 00:00:00Z to 2024-09-03 00:00:00Z, are older than the \
             retention (base 30d): the store drops them as soon as their days are rolled up; the \
             rollups 1m, 5m, 1h, 1d remain"
        );
        assert_eq!(check(&retention(&[]), &[9_000]), None);
    }

    #[test]
    fn samples_of_which_nothing_would_remain_are_not_imported() {
        let all = Resolution::ALL.map(|resolution| (resolution, 30, Selector::All));
        let (text, is_accepted) = check(&retention(&all), &[1, 40]).unwrap();
        assert!(!is_accepted);
        assert!(text.contains("rolled up; of 2 of them nothing remains; nothing is imported"));
        // A sample of 40 days ago has expired after 40 days.
        assert!(text.contains(": raise the retention to at least 41d (`topdeck"), "{text}");
        assert!(text.ends_with("--accept-retention"), "{text}");
        // The first rule that matches a series applies.
        let of_a = (Resolution::Base, 30, Selector::label_equals(model::selector::NAME, "a"));
        let (text, _) = check(&retention(&[of_a]), &[40]).unwrap();
        assert!(text.starts_with("1 of 2 samples"), "{text}");
    }

    #[test]
    fn rules_are_read_from_the_status_of_a_server() {
        let status = json!({"now_ns": NOW, "store": {"retention": [
            {"resolution": "base", "duration_ns": 30 * DAY, "selector": "*"},
            {"resolution": "1d", "duration_ns": null, "selector": "and(host:a)"},
        ]}});
        let found = TargetRetention::of_status(&status, 0);
        assert_eq!((found.rules.len(), found.now), (2, NOW));
        assert_eq!(found.rules[1].duration, None);
        assert!(TargetRetention::of_status(&json!({"store": null}), 5).rules.is_empty());
    }
}
