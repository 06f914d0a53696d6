//! Probes: check kinds, one file each.
//!
//! A kind is a type with [`Probe`] and a row of [`PROBES`]. It has its own keys of `[[check]]`; one
//! of them has the address and selects the kind. The shared parts of checks (times, labels,
//! connection, series, attempt log) are in `check.rs`.

mod http;
mod tcp;

#[cfg(test)]
#[path = "../../../testdata/extensions/check/header.rs"]
mod example;

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use net::Endpoint;
use net::dial::HttpConnection;
use role::settings::{Document, Problems, SettingsCheck, TableRef};
use serde::de::DeserializeOwned;

pub use self::http::{HttpProbe, Statuses};
pub use self::tcp::TcpProbe;

/// All check kinds.
pub(crate) const PROBES: &[ProbeRow] = &[
    // A comment: rustfmt then writes one row per line.
    row::<HttpProbe>(),
    row::<TcpProbe>(),
];

/// Check kind. The fields of the type are its keys of `[[check]]`.
pub trait Probe: DeserializeOwned + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// Key of the address.
    const KEY: &'static str;
    /// All keys of the kind.
    const KEYS: &'static [&'static str];

    /// Checks the settings.
    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>);

    /// Target URL; `https` selects TLS.
    fn url(&self) -> String;

    /// Runs the probe over a new connection; returns the reason of a failure. The future may be
    /// dropped at any time; `attempt` has the measurements so far.
    fn run(&self, attempt: &mut Attempt<'_>) -> impl Future<Output = Result<(), String>> + Send;
}

/// Connected attempt of a check.
#[derive(Debug)]
pub struct Attempt<'a> {
    pub(crate) connection: &'a mut HttpConnection,
    pub(crate) target: &'a Endpoint,
    pub(crate) timeout: Duration,
    pub(crate) found: &'a mut ProbeReport,
}

/// Measurements of an attempt.
#[derive(Debug, Default)]
pub(crate) struct ProbeReport {
    pub(crate) phases: Vec<(&'static str, Duration)>,
    pub(crate) status: Option<u16>,
    pub(crate) expires: Option<i64>,
    pub(crate) failed: Option<String>,
}

/// A probe of any kind, type-erased.
#[derive(Clone)]
pub struct AnyProbe(Arc<dyn DynProbe>);

impl AnyProbe {
    /// Wraps a probe.
    pub fn new(probe: impl Probe) -> AnyProbe {
        AnyProbe(Arc::new(probe))
    }

    pub(crate) fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        self.0.check(table, check);
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    pub(crate) async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        self.0.run(attempt).await
    }
}

impl fmt::Debug for AnyProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl PartialEq for AnyProbe {
    fn eq(&self, other: &AnyProbe) -> bool {
        self.0.equals(&*other.0)
    }
}

/// Object-safe form of [`Probe`].
trait DynProbe: Any + fmt::Debug + Send + Sync {
    fn equals(&self, other: &(dyn DynProbe + 'static)) -> bool;
    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>);
    fn url(&self) -> String;
    fn run<'a, 'b: 'a>(
        &'a self,
        attempt: &'a mut Attempt<'b>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;
}

impl<P: Probe> DynProbe for P {
    fn equals(&self, other: &(dyn DynProbe + 'static)) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        Probe::check(self, table, check);
    }

    fn url(&self) -> String {
        Probe::url(self)
    }

    fn run<'a, 'b: 'a>(
        &'a self,
        attempt: &'a mut Attempt<'b>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>> {
        Box::pin(Probe::run(self, attempt))
    }
}

/// Table row of a check kind.
pub(crate) struct ProbeRow {
    pub(crate) key: &'static str,
    pub(crate) keys: &'static [&'static str],
    /// Reads the kind's keys from a table.
    pub(crate) read: fn(&Document<'_>, TableRef<'_>) -> Result<AnyProbe, Problems>,
}

const fn row<P: Probe>() -> ProbeRow {
    ProbeRow { key: P::KEY, keys: P::KEYS, read: read::<P> }
}

fn read<P: Probe>(document: &Document<'_>, table: TableRef<'_>) -> Result<AnyProbe, Problems> {
    document.read_table::<P>(table, P::KEYS).map(AnyProbe::new)
}
