//! TCP probe: connects and closes.

use role::settings::{SettingsCheck, TableRef};
use serde::Deserialize;

use crate::probe::{Attempt, Probe};

/// `tcp = "host:port"`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct TcpProbe {
    /// `host:port`.
    pub tcp: String,
}

impl Probe for TcpProbe {
    const KEY: &'static str = "tcp";
    const KEYS: &'static [&'static str] = &["tcp"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        check.host_and_port(table, "tcp", &self.tcp);
    }

    fn url(&self) -> String {
        format!("http://{}", self.tcp)
    }

    async fn run(&self, _attempt: &mut Attempt<'_>) -> Result<(), String> {
        Ok(())
    }
}
