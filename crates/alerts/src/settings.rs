//! Table `[alerts]` of the settings, and the tables of notifications.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use notify::{NotifyProblem, NotifySettings};
use role::BoxError;
use role::settings::{
    Document, DurationSetting, FilePath, Problems, SettingsCheck, TableRef, duration_or,
};
use rules::slo::Slo;
use rules::{AlertTemplates, GroupDefaults};
use serde::Deserialize;

use crate::message_templates::message_template_problems;
use crate::primary_site::{PrimarySite, PrimarySiteTable};
use crate::slo_settings::{self, SloTable};

/// Bounds of `evaluation_interval`.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Defaults of Prometheus.
const INTERVAL: Duration = Duration::from_secs(60);
const RESEND_DELAY: Duration = Duration::from_secs(60);
/// Severity of the alerts of changes of series: `info`, which does not change the status light.
const SERIES_CHANGE_SEVERITY: u8 = 4;

/// Settings tables of the role.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlertTables {
    pub(crate) alerts: AlertsTable,
    slo: Vec<SloTable>,
    /// Contacts and routes; none if they have problems.
    #[serde(skip)]
    pub(crate) notify: NotifySettings,
    /// Directory of the settings file, for relative paths of secrets.
    #[serde(skip)]
    pub(crate) dir: PathBuf,
    #[serde(skip)]
    notify_problems: Vec<NotifyProblem>,
}

/// `[alerts]`: rule files and how they are evaluated.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct AlertsTable {
    /// Rule files of Prometheus; `*` and `?` match within a component of the path.
    rule_files: Vec<FilePath>,
    /// OpenSLO files, with patterns as those of `rule_files`.
    openslo_files: Vec<FilePath>,
    /// Time between evaluations of groups that set none: `1min`.
    evaluation_interval: Option<DurationSetting>,
    /// How far in the past groups that set no `query_offset` are evaluated: by default
    /// not at all.
    query_offset: Option<DurationSetting>,
    /// Time after which `/api/v2/alerts` renews `updatedAt` and `endsAt` of an alert that keeps
    /// firing: `1min`.
    resend_delay: Option<DurationSetting>,
    /// URL under which users reach this node, for templates (`$externalURL`).
    external_url: Option<String>,
    /// Labels for templates (`$externalLabels`).
    external_labels: BTreeMap<String, String>,
    /// Alerts of changes of series: by default of severity 4.
    series_changes: Option<SeriesChangesKey>,
    /// The site that notifies contacts while it answers.
    primary: Option<PrimarySiteTable>,
}

/// `series_changes = false`, or a table.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged, expecting = "expected false, true, or { severity = 4 }")]
enum SeriesChangesKey {
    Switch(bool),
    Table(SeriesChangesTable),
}

/// `series_changes = { severity = 4 }`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct SeriesChangesTable {
    severity: u8,
}

impl AlertTables {
    /// Reads the tables. Problems of contacts and routes are reported by [`AlertTables::check`]:
    /// their reader finds all at once.
    pub(crate) fn read(document: &Document<'_>) -> Result<AlertTables, Problems> {
        let mut tables: AlertTables = document.read(&["alerts", "slo"])?;
        document.dir().clone_into(&mut tables.dir);
        match NotifySettings::read(document.root(), document.dir()) {
            Ok(notify) => {
                tables.notify_problems = message_template_problems(&notify.contacts);
                tables.notify = notify;
            }
            Err(problems) => tables.notify_problems = problems,
        }
        Ok(tables)
    }

    /// Patterns of rule files.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = PathBuf> {
        self.alerts.rule_files.iter().map(|path| path.to_path_buf())
    }

    /// Patterns of OpenSLO files.
    pub(crate) fn openslo_patterns(&self) -> impl Iterator<Item = PathBuf> {
        self.alerts.openslo_files.iter().map(|path| path.to_path_buf())
    }

    /// Whether there are SLOs, valid or not.
    pub(crate) fn has_slos(&self) -> bool {
        !self.slo.is_empty() || self.openslo_patterns().next().is_some()
    }

    /// SLOs of the settings.
    pub(crate) fn slos(&self) -> Vec<Slo> {
        slo_settings::slos(&self.slo)
    }

    /// The site that notifies contacts while it answers; its token is read now.
    pub(crate) fn primary(&self) -> Result<Option<PrimarySite>, BoxError> {
        self.alerts.primary.as_ref().map(PrimarySiteTable::read).transpose()
    }

    /// Whether another site notifies contacts while it answers.
    pub(crate) fn has_primary(&self) -> bool {
        self.alerts.primary.is_some()
    }

    /// Values for groups that do not set them.
    pub(crate) fn group_defaults(&self) -> GroupDefaults {
        let offset = duration_or(self.alerts.query_offset, Duration::ZERO);
        GroupDefaults {
            interval_ns: nanoseconds(duration_or(self.alerts.evaluation_interval, INTERVAL)),
            query_offset_ns: nanoseconds(offset),
        }
    }

    /// Severity of the alerts of changes of series; `None`: there are none.
    pub(crate) fn series_change_severity(&self) -> Option<u8> {
        match &self.alerts.series_changes {
            None | Some(SeriesChangesKey::Switch(true)) => Some(SERIES_CHANGE_SEVERITY),
            Some(SeriesChangesKey::Switch(false)) => None,
            Some(SeriesChangesKey::Table(table)) => Some(table.severity),
        }
    }

    /// Time between renewals of a firing alert.
    pub(crate) fn resend_delay_ns(&self) -> i64 {
        nanoseconds(duration_or(self.alerts.resend_delay, RESEND_DELAY))
    }

    /// URL under which people reach this node; empty if it is not known.
    pub(crate) fn external_url(&self) -> &str {
        self.alerts.external_url.as_deref().unwrap_or_default()
    }

    /// What templates see.
    pub(crate) fn templates(&self) -> AlertTemplates {
        AlertTemplates {
            external_labels: self.alerts.external_labels.clone(),
            external_url: self.external_url().to_owned(),
        }
    }

    /// Reports invalid values.
    pub(crate) fn check(&self, check: &mut SettingsCheck<'_>) {
        let (table, alerts) = (TableRef::named("alerts"), &self.alerts);
        let interval = alerts.evaluation_interval;
        check.range(table, "evaluation_interval", interval, INTERVAL_MIN..=INTERVAL_MAX);
        check.range(table, "query_offset", alerts.query_offset, Duration::ZERO..=INTERVAL_MAX);
        check.range(table, "resend_delay", alerts.resend_delay, Duration::ZERO..=INTERVAL_MAX);
        if let Some(found) = self.series_change_severity().filter(|it| !(1..=5).contains(it)) {
            let what = format!("severity: found {found}, expected 1 (worst) to 5");
            check.problem(table, "series_changes", what);
        }
        if let Some(url) = &alerts.external_url {
            check.url(table, "external_url", url);
        }
        if let Some(primary) = &alerts.primary {
            primary.check(check);
        }
        slo_settings::check(&self.slo, check);
        let problems = self.notify_problems.iter();
        check.problems_at(problems.map(|problem| (problem.position, problem.what.clone())));
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
