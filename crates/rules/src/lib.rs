//! Alerting and recording rules: rule files, states of alerts, evaluation of groups, replay; and
//! changes of series.
//!
//! The crate is pure. It has no clock, disk, thread or socket: times (nanoseconds since the Unix
//! epoch, as `i64`) and data are arguments, and the samples, notices and states that result are
//! returned. A simulated clock is therefore a loop over numbers.
//!
//! 1. [`parse_rule_file`] reads the rule files of Prometheus and of topdeck ([`OwnCondition`]), and
//!    reports every problem with its line and column.
//! 2. [`EvaluatedGroup`] evaluates the rules of a group in order. Later rules see the results of
//!    earlier ones through a [`SampleOverlay`].
//!    [`AlertTemplates`] expands labels and annotations ([`template`]).
//! 3. [`AlertTable`] holds the alerts of a rule, with the semantics of Prometheus 3.
//! 4. [`run_rule_tests`] runs the test files of promtool.
//! 5. [`slo`] has objectives, their budgets and the rules of their alerts.
//! 6. [`replay_groups`] tells what groups would have done over stored data.
//! 7. [`SeriesInventory`] and [`match_changes`] tell which series vanished and what replaced them;
//!    [`encode_inventory`] and [`decode_inventory`] carry the inventory across a restart.
//! 8. [`unmatched_selectors`] tells which rules select nothing, and what may have been meant.
//! 9. [`AffectedSeries`] tells how many requests and users an alert affected, and their values.
//! 10. [`encode_snapshots`] and [`decode_snapshots`] carry the states across a restart.
#![forbid(unsafe_code)]

mod affected_series;
mod affected_users;
mod alert_acknowledgement;
mod alert_clearance;
mod alert_series;
mod alert_table;
mod alert_table_error;
mod alert_templates;
mod evaluator;
mod flap_counter;
mod group;
mod memory_histograms;
mod memory_series;
mod other_rules;
mod overlay;
mod own;
mod replay;
mod rule_file;
mod rule_snapshot;
mod rule_test;
mod series_set_changes;
pub mod slo;
pub mod template;
mod unmatched_selector;
mod yaml;
mod yaml_fields;

pub use affected_series::{AffectedCounts, AffectedRule, AffectedSeries, AlertColumns};
pub use alert_acknowledgement::{
    AcknowledgementChange, AlertAcknowledgement, AlertAcknowledgements,
};
pub use alert_clearance::AlertClearance;
pub use alert_series::is_alert_series;
pub use alert_table::{
    Alert, AlertNotice, AlertState, AlertTable, CriterionMatch, RESOLVED_RETENTION_NS,
};
pub use alert_table_error::AlertTableError;
pub use alert_templates::AlertTemplates;
pub use evaluator::{OverlayEvaluator, RuleQueryError, RuleSample};
pub use flap_counter::FlapCounter;
pub use group::{
    EvaluatedGroup, EvaluatedRule, GroupDefaults, IterationInputs, IterationResult, RuleHealth,
    RuleWrite,
};
pub use memory_series::MemorySeries;
pub use overlay::{SampleOverlay, SourceEvaluator};
pub use own::OwnCondition;
pub use replay::{
    ReplayInputs, ReplayState, ReplayTransition, ReplayedAlert, ReplayedRule, RuleReplay,
    RuleReplayError, RuleThreshold, ThresholdExcess, replay_groups,
};
pub use rule_file::{
    AlertSettings, FilePosition, LabelMap, MissingData, ProblemSeverity, Rule, RuleFile, RuleGroup,
    RuleKind, RuleProblem, parse_rule_file, parse_rule_file_with,
};
pub use rule_snapshot::{
    GroupSnapshot, SNAPSHOT_VERSION, SnapshotError, decode_snapshots, encode_snapshots,
};
pub use rule_test::{RuleTestFailure, RuleTestFile, parse_rule_test_file, run_rule_tests};
pub use series_set_changes::{
    ChangeAcceptance, InventoryError, MatchedChange, ObservedSeries, SeriesEvent, SeriesInventory,
    SeriesSetChange, StoredInventory, decode_inventory, encode_inventory, match_changes,
    read_changes,
};
pub use unmatched_selector::{UnmatchedSelector, unmatched_selectors};
