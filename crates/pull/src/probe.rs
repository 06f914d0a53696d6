//! Probes: what a check tries once it has a connection, one file for each kind.
//!
//! A kind is a type with [`Probe`] and a row of [`PROBES`]. Its keys of `[[check]]` are its own;
//! one of them has the address, and so names the kind. What all checks have in common (times,
//! labels, connection, series, ledger) is in `check.rs`.

mod http;
mod tcp;

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

/// All kinds.
pub(crate) const PROBES: &[ProbeRow] = &[row::<HttpProbe>(), row::<TcpProbe>()];

/// A kind of check. The fields of the type are its keys of `[[check]]`.
pub trait Probe: DeserializeOwned + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// The key that has the address.
    const KEY: &'static str;
    /// All keys.
    const KEYS: &'static [&'static str];

    /// Reports what is wrong with its keys.
    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>);

    /// Where a check connects: a URL, with `https` for TLS.
    fn url(&self) -> String;

    /// Tries, over a new connection; returns why it failed. It may be dropped at any time: what it
    /// measured is in the attempt then.
    fn run(&self, attempt: &mut Attempt<'_>) -> impl Future<Output = Result<(), String>> + Send;
}

/// An attempt of a check, connected.
#[derive(Debug)]
pub struct Attempt<'a> {
    pub(crate) connection: &'a mut HttpConnection,
    pub(crate) target: &'a Endpoint,
    pub(crate) timeout: Duration,
    pub(crate) found: &'a mut ProbeReport,
}

/// What an attempt found.
#[derive(Debug, Default)]
pub(crate) struct ProbeReport {
    pub(crate) phases: Vec<(&'static str, Duration)>,
    pub(crate) status: Option<u16>,
    pub(crate) expires: Option<i64>,
    pub(crate) failed: Option<String>,
}

/// A probe of any kind.
#[derive(Clone)]
pub struct AnyProbe(Arc<dyn DynProbe>);

impl AnyProbe {
    /// A probe.
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

/// [`Probe`] without its type.
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

/// The row of a kind.
pub(crate) struct ProbeRow {
    pub(crate) key: &'static str,
    pub(crate) keys: &'static [&'static str],
    /// Reads its keys of a table.
    pub(crate) read: fn(&Document<'_>, TableRef<'_>) -> Result<AnyProbe, Problems>,
}

const fn row<P: Probe>() -> ProbeRow {
    ProbeRow { key: P::KEY, keys: P::KEYS, read: read::<P> }
}

fn read<P: Probe>(document: &Document<'_>, table: TableRef<'_>) -> Result<AnyProbe, Problems> {
    document.read_table::<P>(table, P::KEYS).map(AnyProbe::new)
}
