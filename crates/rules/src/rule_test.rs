//! Unit tests of rules, in the file format of `promtool test rules`.
//!
//! A test has series in the notation of Prometheus, evaluates rule files over them, and compares
//! alerts and the results of expressions with expected ones. Rules of Prometheus see the series as
//! in promtool, own rules as a server stores them. The runner is pure: the caller reads the rule
//! files.
//!
//! As in promtool, every evaluation is one of all groups, whatever their intervals; samples become
//! visible at the evaluation at or after their time; a rule that fails ends the test. Unlike there,
//! the reset hints of histograms are not compared.

mod alert_comparison;
mod file;
mod run;
mod server_series;

use query::LabelSet;
use query::notation::NotationItem;

use crate::alert_templates::AlertTemplates;
use crate::rule_file::FilePosition;
use alert_comparison::ExpectedAlert;
pub use file::parse_rule_test_file;
pub use run::run_rule_tests;

/// Test file.
#[derive(Clone, Debug, Default)]
pub struct RuleTestFile {
    /// Rule files as written: paths, relative to the test file, which may be patterns.
    pub rule_files: Vec<String>,
    pub(crate) evaluation_interval_ns: i64,
    pub(crate) is_fuzzy: bool,
    pub(crate) group_order: Vec<String>,
    pub(crate) tests: Vec<RuleTest>,
}

/// Test with its series and expectations.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleTest {
    pub(crate) name: String,
    pub(crate) interval_ns: i64,
    pub(crate) start_ns: i64,
    pub(crate) series: Vec<(LabelSet, Vec<NotationItem>)>,
    pub(crate) alerts: Vec<AlertExpectation>,
    pub(crate) expressions: Vec<ExpressionExpectation>,
    pub(crate) templates: AlertTemplates,
}

/// Alerts of a name at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlertExpectation {
    pub(crate) position: FilePosition,
    pub(crate) time_ns: i64,
    pub(crate) alert: String,
    pub(crate) alerts: Vec<ExpectedAlert>,
}

/// Result of an expression at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpressionExpectation {
    pub(crate) position: FilePosition,
    pub(crate) time_ns: i64,
    pub(crate) expression: String,
    pub(crate) samples: Vec<(LabelSet, query::notation::NotationValue)>,
}

/// Failed expectation or evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleTestFailure {
    /// Name of the test, or its number.
    pub test: String,
    /// Position of the expectation, also if its evaluation failed; none for errors of rule files.
    pub position: Option<FilePosition>,
    /// What was expected, and what was found.
    pub message: String,
}
