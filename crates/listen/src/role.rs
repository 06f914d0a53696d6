//! The role `listen`: `[statsd]` and `[graphite]` of the settings file, a listener for each.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use intake::LogFn;
use role::settings::{Document, FilePath, Problems, SettingsCheck, Size, TableRef, Transport};
use role::{BoxError, Role, RoleContext, run_blocking};
use serde::Deserialize;

use crate::listener::Listener;
use crate::settings::{Limits, Settings};

/// The port of StatsD.
const STATSD_PORT: u16 = 8125;

/// The keys of the settings file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct ListenTables {
    /// `[statsd]`.
    pub statsd: StatsdTable,
    /// `[graphite]`.
    pub graphite: GraphiteTable,
}

/// `[statsd]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct StatsdTable {
    /// `["127.0.0.1:8125"]` without a file.
    udp: Vec<SocketAddr>,
    tcp: Vec<SocketAddr>,
    /// A socket of datagrams.
    unix: Option<FilePath>,
    /// What the kernel is asked to hold of datagrams that were not read yet: `8MiB`.
    receive_buffer: Option<Size>,
    /// Series in an interval: 100,000.
    max_series: Option<usize>,
}

/// `[graphite]`: plain lines.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct GraphiteTable {
    tcp: Vec<SocketAddr>,
    udp: Vec<SocketAddr>,
}

impl ListenTables {
    /// Listeners that are asked for, with a name for messages.
    pub fn listeners(&self) -> Vec<(&'static str, Settings)> {
        let mut listeners = Vec::new();
        let ListenTables { statsd, graphite } = self;
        if !statsd.udp.is_empty() || !statsd.tcp.is_empty() || statsd.unix.is_some() {
            let default = Limits::default();
            let buffer = statsd.receive_buffer.map(Size::in_memory);
            let limits = Limits {
                receive_buffer_bytes: buffer.unwrap_or(default.receive_buffer_bytes),
                series_max: statsd.max_series.unwrap_or(default.series_max),
                ..default
            };
            let (udp, tcp) = (statsd.udp.clone(), statsd.tcp.clone());
            let unix = statsd.unix.as_ref().map(|path| path.to_path_buf());
            listeners.push(("StatsD", Settings { udp, tcp, unix, limits, ..Settings::statsd() }));
        }
        if !graphite.tcp.is_empty() || !graphite.udp.is_empty() {
            let (udp, tcp) = (graphite.udp.clone(), graphite.tcp.clone());
            listeners.push(("Graphite", Settings { udp, tcp, ..Settings::graphite() }));
        }
        listeners
    }
}

/// The listeners of the settings.
#[derive(Debug)]
pub struct ListenRole {
    listeners: Vec<(&'static str, Settings, Listener)>,
}

impl Role for ListenRole {
    const NAME: &'static str = "listen";
    const KEYS: &'static [&'static str] = &["statsd", "graphite"];

    type Settings = ListenTables;

    fn read(document: &Document<'_>) -> Result<ListenTables, Problems> {
        document.read(Self::KEYS)
    }

    /// StatsD on its own port of this host. Nobody asked for it: where another program has the
    /// port, there is no StatsD.
    fn settings_without_file(log: &LogFn) -> ListenTables {
        let address = SocketAddr::from(([127, 0, 0, 1], STATSD_PORT));
        let is_free = UdpSocket::bind(address).is_ok();
        if !is_free {
            log(&format!("{address} is in use: StatsD is not listened to"));
        }
        let udp = if is_free { vec![address] } else { Vec::new() };
        ListenTables { statsd: StatsdTable { udp, ..StatsdTable::default() }, ..Default::default() }
    }

    fn check(settings: &ListenTables, check: &mut SettingsCheck<'_>) {
        let ListenTables { statsd, graphite } = settings;
        let (statsd_table, graphite_table) =
            (TableRef::named("statsd"), TableRef::named("graphite"));
        check.listen(statsd_table, "tcp", Transport::Tcp, &statsd.tcp);
        check.listen(statsd_table, "udp", Transport::Udp, &statsd.udp);
        check.listen(graphite_table, "tcp", Transport::Tcp, &graphite.tcp);
        check.listen(graphite_table, "udp", Transport::Udp, &graphite.udp);
    }

    /// Intervals are put together in memory.
    fn is_lossy(settings: &ListenTables) -> bool {
        !settings.listeners().is_empty()
    }

    fn start(settings: &ListenTables, context: &RoleContext) -> Result<ListenRole, BoxError> {
        let mut listeners = Vec::new();
        for (name, wanted) in settings.listeners() {
            let listener = Listener::start(wanted.clone(), Arc::clone(&context.intake))
                .map_err(|error| cannot_listen(name, &error))?;
            listeners.push((name, wanted, listener));
        }
        Ok(ListenRole { listeners })
    }

    async fn reload(
        &mut self,
        settings: &ListenTables,
        context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        let (wanted, mut lines) = (settings.listeners(), Vec::new());
        // All that end do so before others start, which may have their addresses.
        for (name, is, listener) in std::mem::take(&mut self.listeners) {
            match wanted.iter().any(|(_, wanted)| *wanted == is) {
                true => self.listeners.push((name, is, listener)),
                false => run_blocking(move || listener.stop()).await?,
            }
        }
        for (name, wanted) in wanted {
            if self.listeners.iter().any(|(_, is, _)| *is == wanted) {
                continue;
            }
            match Listener::start(wanted.clone(), Arc::clone(&context.intake)) {
                Ok(listener) => {
                    lines.push(format!("{name} is listened to as the settings say"));
                    self.listeners.push((name, wanted, listener));
                }
                Err(error) => lines.push(cannot_listen(name, &error)),
            }
        }
        Ok(lines)
    }

    async fn stop(self) -> Result<(), BoxError> {
        let stop = move || self.listeners.into_iter().for_each(|(_, _, listener)| listener.stop());
        run_blocking(stop).await
    }

    fn log_lines(&self) -> Vec<String> {
        let line = |(name, _, listener): &(&str, Settings, Listener)| {
            let addresses: Vec<String> =
                listener.addresses().iter().map(ToString::to_string).collect();
            format!("{name} at {}", addresses.join(", "))
        };
        self.listeners.iter().map(line).collect()
    }
}

fn cannot_listen(name: &str, error: &crate::Error) -> String {
    format!("{name} cannot be listened to: {error}")
}
