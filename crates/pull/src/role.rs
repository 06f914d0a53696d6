//! Role `pull`: `[[scrape]]` and `[[check]]` of the settings file.

use std::collections::BTreeMap;

use role::settings::{
    Document, DurationSetting, FilePath, Problems, SettingsCheck, SettingsCount, TableRef,
    client_tls, duration_or, read_token,
};
use role::{BoxError, NodeMode, Role, RoleContext, StatusSection};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::check::{CheckConfig, RESERVED_LABELS};
use crate::probe::{AnyProbe, PROBES};
use crate::pull::Pull;
use crate::scrape::ScrapeConfig;
use crate::settings::{CheckJobSettings, INTERVALS, INTERVALS_MAX, ScrapeJobSettings, Settings};

/// Settings tables of the role.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PullTables {
    /// `[[scrape]]`.
    pub scrapes: Vec<ScrapeTable>,
    /// `[[check]]`.
    pub checks: Vec<CheckTable>,
}

/// `[[scrape]]`: a metrics endpoint, scraped periodically.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ScrapeTable {
    /// Value of the label `job`.
    name: String,
    /// `http://` or `https://`.
    url: String,
    /// `15s`.
    interval: Option<DurationSetting>,
    /// `10s`, at most the interval.
    timeout: Option<DurationSetting>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Whether scraped labels take precedence over `job`, `instance` and the labels here.
    #[serde(default)]
    honor_labels: bool,
    /// Whether scraped timestamps are used.
    #[serde(default = "yes")]
    honor_timestamps: bool,
    /// File with the token of `Authorization: Bearer`.
    token_file: Option<FilePath>,
    /// PEM file with the CA certificate of the target; default: the system's CAs.
    ca: Option<FilePath>,
    certificate: Option<FilePath>,
    key: Option<FilePath>,
}

/// `[[check]]`: a target, probed periodically on an open-loop schedule.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct CheckTable {
    /// Value of the label `check`.
    name: String,
    /// `10s`.
    interval: Option<DurationSetting>,
    /// `10s`.
    timeout: Option<DurationSetting>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    ca: Option<FilePath>,
    /// The probe, if exactly one is configured. Its keys are read separately.
    #[serde(skip)]
    probe: Option<AnyProbe>,
}

/// Keys of `[[check]]` that belong to no probe.
const CHECK_KEYS: [&str; 5] = ["name", "interval", "timeout", "labels", "ca"];

/// `[[check]]` as parsed from the file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CheckKeys {
    check: Vec<BTreeMap<String, IgnoredAny>>,
}

/// `[[scrape]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ScrapeTables {
    scrape: Vec<ScrapeTable>,
}

fn yes() -> bool {
    true
}

impl PullTables {
    /// The checks.
    pub fn checks(&self) -> Result<Vec<CheckJobSettings>, BoxError> {
        self.checks.iter().map(CheckTable::read).collect()
    }

    fn settings(&self) -> Result<Settings, BoxError> {
        Ok(Settings {
            scrapes: self.scrapes.iter().map(ScrapeTable::read).collect::<Result<_, _>>()?,
            checks: self.checks()?,
            ..Settings::default()
        })
    }
}

impl ScrapeTable {
    fn read(&self) -> Result<ScrapeJobSettings, BoxError> {
        let default = ScrapeJobSettings::default();
        let interval = duration_or(self.interval, default.interval);
        let (ca, certificate, key) = (&self.ca, &self.certificate, &self.key);
        Ok(ScrapeJobSettings {
            name: self.name.clone(),
            url: self.url.clone(),
            interval,
            timeout: duration_or(self.timeout, default.timeout).min(interval),
            labels: self.labels.clone().into_iter().collect(),
            honor_labels: self.honor_labels,
            honor_timestamps: self.honor_timestamps,
            token: read_token(&format!("scrape {:?}", self.name), self.token_file.as_ref())?,
            tls: client_tls(ca.as_ref(), certificate.as_ref(), key.as_ref()),
            ..default
        })
    }

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        check.url(table, "url", &self.url);
        check.file(table, "token_file", self.token_file.as_ref());
        let (ca, certificate, key) = (&self.ca, &self.certificate, &self.key);
        check.client_tls(table, ca.as_ref(), certificate.as_ref(), key.as_ref());
        if let (Some(timeout), Some(interval)) = (self.timeout, self.interval)
            && timeout > interval
        {
            check.problem(table, "timeout", "timeout is longer than interval");
        }
        check.range(table, "interval", self.interval, INTERVALS);
        check_labels(&self.labels, &[], table, check);
        check.contents(table, "name", || {
            ScrapeConfig::new(&self.read()?)?;
            Ok::<(), BoxError>(())
        });
    }
}

impl CheckTable {
    /// Reads the keys of all checks and of their probes.
    fn of_file(
        document: &Document<'_>,
        table: TableRef<'_>,
        keys: &BTreeMap<String, IgnoredAny>,
    ) -> Result<CheckTable, Problems> {
        let mut probes = PROBES.iter().filter(|row| keys.contains_key(row.key));
        let row = match (probes.next(), probes.next()) {
            (Some(row), None) => Some(row),
            _ => None,
        };
        // Without a kind, the keys of all kinds are known.
        let of_kinds = PROBES.iter().filter(|other| row.is_none_or(|row| row.key == other.key));
        let known: Vec<&str> =
            CHECK_KEYS.iter().chain(of_kinds.flat_map(|row| row.keys)).copied().collect();
        let unknown = document.unknown_keys(table, &known);
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let check: CheckTable = document.read_table(table, &CHECK_KEYS)?;
        let probe = row.map(|row| (row.read)(document, table)).transpose()?;
        Ok(CheckTable { probe, ..check })
    }

    fn read(&self) -> Result<CheckJobSettings, BoxError> {
        let default = CheckJobSettings::default();
        let interval = duration_or(self.interval, default.interval);
        Ok(CheckJobSettings {
            name: self.name.clone(),
            target: self.probe.clone().unwrap_or(default.target),
            interval,
            // Limit of attempts in flight.
            timeout: duration_or(self.timeout, default.timeout.min(interval * 60)),
            labels: self.labels.clone().into_iter().collect(),
            tls: client_tls(self.ca.as_ref(), None, None),
        })
    }

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        match &self.probe {
            Some(probe) => probe.check(table, check),
            None => {
                let keys: Vec<&str> = PROBES.iter().map(|row| row.key).collect();
                let what = format!("a check has exactly one of {}", keys.join(", "));
                check.absent(table, "name", &keys, what);
            }
        }
        check.file(table, "ca", self.ca.as_ref());
        check.range(table, "interval", self.interval, INTERVALS);
        let interval = duration_or(self.interval, CheckJobSettings::default().interval);
        if let Some(DurationSetting(timeout)) = self.timeout
            && timeout > interval * INTERVALS_MAX
        {
            let what = format!("timeout is {timeout:?}, must be at most {INTERVALS_MAX} intervals");
            check.problem(table, "timeout", what);
        }
        check_labels(&self.labels, &RESERVED_LABELS, table, check);
        check.contents(table, "name", || {
            CheckConfig::new(&self.read()?)?;
            Ok::<(), BoxError>(())
        });
    }
}

/// Checks that labels have no reserved names.
fn check_labels(
    labels: &BTreeMap<String, String>,
    reserved: &[&str],
    table: TableRef<'_>,
    check: &mut SettingsCheck<'_>,
) {
    for name in labels.keys() {
        if name.starts_with("__") {
            let what = format!("label {name:?}: names that begin with __ are reserved; rename it");
            check.problem(table, "labels", what);
        } else if reserved.contains(&&**name) {
            let what = format!("label {name:?}: the check itself sets it; rename it");
            check.problem(table, "labels", what);
        }
    }
}

/// Configured jobs.
#[derive(Debug)]
pub struct PullRole {
    settings: PullTables,
    pull: Pull,
}

impl Role for PullRole {
    const NAME: &'static str = "pull";
    const KEYS: &'static [&'static str] = &["scrape", "check"];

    type Settings = PullTables;

    fn read(document: &Document<'_>) -> Result<PullTables, Problems> {
        let scrapes = document.read::<ScrapeTables>(&["scrape"]).map(|read| read.scrape);
        let keys = document.read::<CheckKeys>(&["check"]).map(|read| read.check);
        let (mut problems, mut checks) = (Problems::default(), Vec::new());
        for (at, keys) in keys.iter().flatten().enumerate() {
            match CheckTable::of_file(document, TableRef::nth("check", at), keys) {
                Ok(check) => checks.push(check),
                Err(found) => problems.extend(found),
            }
        }
        match (scrapes, keys) {
            (Ok(scrapes), Ok(_)) if problems.is_empty() => Ok(PullTables { scrapes, checks }),
            (scrapes, keys) => {
                scrapes.err().into_iter().chain(keys.err()).for_each(|own| problems.extend(own));
                Err(problems)
            }
        }
    }

    fn validate_settings(settings: &PullTables, check: &mut SettingsCheck<'_>) {
        let PullTables { scrapes, checks } = settings;
        check.names("scrape", scrapes.iter().map(|scrape| &*scrape.name));
        check.names("check", checks.iter().map(|check| &*check.name));
        for (at, scrape) in scrapes.iter().enumerate() {
            scrape.check(TableRef::nth("scrape", at), check);
        }
        for (at, one) in checks.iter().enumerate() {
            one.check(TableRef::nth("check", at), check);
        }
    }

    fn validate_files(settings: &PullTables, _mode: Option<NodeMode>) -> Result<(), BoxError> {
        Ok(settings.settings()?.check()?)
    }

    fn summary(settings: &PullTables) -> Vec<SettingsCount> {
        let (scrapes, checks) = (settings.scrapes.len(), settings.checks.len());
        vec![
            SettingsCount { count: scrapes, one: "scrape", many: "scrapes" },
            SettingsCount { count: checks, one: "check", many: "checks" },
        ]
    }

    fn start(settings: &PullTables, context: &RoleContext) -> Result<PullRole, BoxError> {
        let pull = Pull::start(&settings.settings()?, &context.intake)?;
        Ok(PullRole { settings: settings.clone(), pull })
    }

    async fn reload(
        &mut self,
        settings: &PullTables,
        _context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        // Files with tokens and certificates may have changed under the same names.
        self.pull.reload(&settings.settings()?).await?;
        let mut lines = Vec::new();
        if self.settings != *settings {
            lines.push("scrape targets and checks reloaded".to_owned());
            self.settings = settings.clone();
        }
        Ok(lines)
    }

    async fn stop(self) -> Result<(), BoxError> {
        self.pull.stop().await;
        Ok(())
    }

    fn status(&self) -> Vec<StatusSection> {
        vec![StatusSection::new("targets", self.pull.read_targets())]
    }
}
