//! Line formats over datagrams and connections. A format is a type with [`LineFormat`] and a row in
//! the table of `formats.rs`; the shared parts (sockets, threads, intervals, ledger) are in the
//! other files.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use intake::LogFn;
use model::Series;
use role::settings::{Document, Problems, SettingsCheck, TableRef};
use serde::de::DeserializeOwned;

use crate::line_sink::LineSink;
use crate::settings::Limits;

/// A line format. The fields of the type are the keys of its settings table.
pub trait LineFormat:
    DeserializeOwned + Default + fmt::Debug + PartialEq + Send + Sync + 'static
{
    /// Name of the settings table and of the producer, `source` label of metrics, and encoding of
    /// series keys.
    const NAME: &'static str;
    /// Display name in messages.
    const TITLE: &'static str;

    /// Settings without a settings file; by default no address.
    fn without_file(_log: &LogFn) -> Self {
        Self::default()
    }

    /// Checks the settings.
    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>);

    /// Listen addresses; none if the format is off.
    fn sockets(&self) -> SocketAddresses;

    /// Limits.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Reads lines: a datagram, or complete lines of a connection.
    fn read(&self, bytes: &[u8], sink: &mut LineSink<'_>);

    /// Series of a key passed to [`LineSink::series`]: kind, then name.
    fn series(&self, kind: u8, name: &str) -> model::Result<Series>;
}

/// Listen addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SocketAddresses {
    /// UDP.
    pub udp: Vec<SocketAddr>,
    /// TCP.
    pub tcp: Vec<SocketAddr>,
    /// Unix datagram socket.
    pub unix: Option<PathBuf>,
}

/// A format with its settings, type-erased.
#[derive(Clone)]
pub struct AnyLineFormat(Arc<dyn ErasedLineFormat>);

impl AnyLineFormat {
    /// Wraps a format.
    pub fn new(format: impl LineFormat) -> AnyLineFormat {
        AnyLineFormat(Arc::new(format))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.0.name()
    }

    pub(crate) fn title(&self) -> &'static str {
        self.0.title()
    }

    pub(crate) fn check(&self, check: &mut SettingsCheck<'_>) {
        self.0.check(TableRef::named(self.name()), check);
    }

    pub(crate) fn sockets(&self) -> SocketAddresses {
        self.0.sockets()
    }

    pub(crate) fn limits(&self) -> Limits {
        self.0.limits()
    }

    pub(crate) fn read(&self, bytes: &[u8], sink: &mut LineSink<'_>) {
        self.0.read(bytes, sink);
    }

    pub(crate) fn series(&self, kind: u8, name: &str) -> model::Result<Series> {
        self.0.series(kind, name)
    }
}

impl fmt::Debug for AnyLineFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl PartialEq for AnyLineFormat {
    fn eq(&self, other: &AnyLineFormat) -> bool {
        self.0.equals(&*other.0)
    }
}

/// Object-safe form of [`LineFormat`].
trait ErasedLineFormat: Any + fmt::Debug + Send + Sync {
    fn equals(&self, other: &(dyn ErasedLineFormat + 'static)) -> bool;
    fn name(&self) -> &'static str;
    fn title(&self) -> &'static str;
    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>);
    fn sockets(&self) -> SocketAddresses;
    fn limits(&self) -> Limits;
    fn read(&self, bytes: &[u8], sink: &mut LineSink<'_>);
    fn series(&self, kind: u8, name: &str) -> model::Result<Series>;
}

impl<F: LineFormat> ErasedLineFormat for F {
    fn equals(&self, other: &(dyn ErasedLineFormat + 'static)) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }

    fn name(&self) -> &'static str {
        F::NAME
    }

    fn title(&self) -> &'static str {
        F::TITLE
    }

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        LineFormat::check(self, table, check);
    }

    fn sockets(&self) -> SocketAddresses {
        LineFormat::sockets(self)
    }

    fn limits(&self) -> Limits {
        LineFormat::limits(self)
    }

    fn read(&self, bytes: &[u8], sink: &mut LineSink<'_>) {
        LineFormat::read(self, bytes, sink);
    }

    fn series(&self, kind: u8, name: &str) -> model::Result<Series> {
        LineFormat::series(self, kind, name)
    }
}

/// Table row of a format.
#[derive(Clone, Copy, Debug)]
pub struct LineFormatRow {
    pub(crate) name: &'static str,
    pub(crate) default: fn() -> AnyLineFormat,
    pub(crate) without_file: fn(&LogFn) -> AnyLineFormat,
    pub(crate) read: fn(&Document<'_>) -> Result<AnyLineFormat, Problems>,
}

impl LineFormatRow {
    /// Creates the row of format `F`.
    pub const fn of<F: LineFormat>() -> LineFormatRow {
        LineFormatRow {
            name: F::NAME,
            default: || AnyLineFormat::new(F::default()),
            without_file: |log| AnyLineFormat::new(F::without_file(log)),
            read: read_table::<F>,
        }
    }
}

fn read_table<F: LineFormat>(document: &Document<'_>) -> Result<AnyLineFormat, Problems> {
    let found: BTreeMap<String, F> = document.read(&[F::NAME])?;
    Ok(AnyLineFormat::new(found.into_values().next().unwrap_or_default()))
}
