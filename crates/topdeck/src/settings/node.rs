//! Settings of the node, converted for its parts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use net::tls::ServerTls;
use role::settings::{Size, duration_or};

use crate::server_log::ServerLog;
use crate::settings::{NodeSettings, TlsSettings};

/// Default OTLP ports, gRPC and HTTP.
pub(crate) const OTLP_PORTS: [u16; 2] = [4317, 4318];
/// Default maximum size of a journal in bytes.
const JOURNAL_BYTES: u64 = 10 << 30;

impl TlsSettings {
    pub(crate) fn server_tls(&self) -> ServerTls {
        ServerTls {
            certificate: self.certificate.to_path_buf(),
            key: self.key.to_path_buf(),
            client_ca: self.client_ca.as_ref().map(|path| path.to_path_buf()),
        }
    }
}

impl NodeSettings {
    /// Listen addresses of HTTP.
    pub(crate) fn http_addresses(&self) -> Vec<SocketAddr> {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match &self.http.listen {
            Some(addresses) => addresses.clone(),
            None => {
                [net::forward_protocol::PORT].into_iter().chain(OTLP_PORTS).map(local).collect()
            }
        }
    }

    pub(crate) fn server(&self, data: &Path) -> api::Settings {
        let tls = self.http.tls.as_ref().map(TlsSettings::server_tls);
        let listen = self.http_addresses().into_iter();
        let (limits, default) = (&self.http.limits, api::Limits::default());
        let bytes = |size: Option<Size>, default| size.map_or(default, Size::in_memory);
        api::Settings {
            listen: listen
                .map(|address| api::ListenSettings { address, tls: tls.clone() })
                .collect(),
            tokens: Some(crate::token::token_file(data)),
            tokens_required: self.http.tokens_required,
            hosts: self.http.allowed_hosts.clone(),
            limits: api::Limits {
                max_body_bytes: bytes(limits.max_body_bytes, default.max_body_bytes),
                max_buffered_body_bytes: bytes(
                    limits.max_buffered_body_bytes,
                    default.max_buffered_body_bytes,
                ),
                max_buffered_response_bytes: bytes(
                    limits.max_buffered_response_bytes,
                    default.max_buffered_response_bytes,
                ),
                body_read_timeout: duration_or(limits.body_read_timeout, default.body_read_timeout),
                max_header_bytes: bytes(limits.max_header_bytes, default.max_header_bytes),
                header_read_timeout: duration_or(
                    limits.header_read_timeout,
                    default.header_read_timeout,
                ),
                request_timeout: duration_or(limits.request_timeout, default.request_timeout),
                write_timeout: duration_or(limits.write_timeout, default.write_timeout),
                idle_timeout: duration_or(limits.idle_timeout, default.idle_timeout),
                max_connections: limits.max_connections.unwrap_or(default.max_connections),
                max_concurrent_decodes: default.max_concurrent_decodes,
            },
        }
    }

    pub(crate) fn query_service(&self, data: &Path) -> api::QueryServiceSettings {
        let default = api::QueryServiceSettings::default();
        api::QueryServiceSettings {
            max_concurrent_queries: self
                .http
                .limits
                .max_concurrent_queries
                .unwrap_or(default.max_concurrent_queries),
            max_query_bytes: self
                .http
                .limits
                .max_query_memory
                .map_or(default.max_query_bytes, |size| size.0),
            snapshots_dir: Some(data.join("snapshots")),
            dashboards_dir: Some(data.join("dashboards")),
            programs_dir: self.install.binaries.as_ref().map(|path| path.to_path_buf()),
            max_response_bytes: self.server(data).limits.max_response_bytes(),
            trace_url: self.exemplars.trace_url.clone(),
            ..default
        }
    }

    /// The log of the server.
    pub(crate) fn server_log(&self) -> ServerLog {
        ServerLog::new(self.log.format)
    }

    fn absence(&self) -> intake::AbsenceSettings {
        let (table, default) = (&self.absence, intake::AbsenceSettings::default());
        intake::AbsenceSettings {
            is_enabled: table.enabled.unwrap_or(default.is_enabled),
            min: duration_or(table.min_duration, default.min),
            factor: table.intervals.unwrap_or(default.factor),
            retire_after: duration_or(table.retire_after, default.retire_after),
        }
    }

    pub(crate) fn intake(&self) -> intake::Settings {
        let default = intake::Settings::default();
        intake::Settings {
            level: self.durability.0,
            interval: duration_or(self.collection_interval, default.interval),
            publish: true,
            absence: self.absence(),
            exemplars: self.exemplar_policy(),
            traces: self.trace_policy(),
            ..default
        }
    }

    fn exemplar_policy(&self) -> intake::ExemplarPolicy {
        let (table, default) = (&self.exemplars, intake::ExemplarPolicy::default());
        intake::ExemplarPolicy {
            is_enabled: table.enabled.unwrap_or(default.is_enabled),
            attributes: table.attributes.clone(),
            hashed_attributes: table.hash_attributes.clone(),
        }
    }

    /// How the store keeps exemplars.
    pub(crate) fn exemplars(&self) -> store::ExemplarOptions {
        let (table, default) = (&self.exemplars, store::ExemplarOptions::default());
        let retention = table.retention.map(|retention| retention.0.as_nanos());
        let retention = retention.map(|ns| i64::try_from(ns).unwrap_or(i64::MAX));
        store::ExemplarOptions {
            bytes_max: table.max_memory.map_or(default.bytes_max, Size::in_memory),
            retention: retention.unwrap_or(default.retention),
        }
    }

    fn trace_policy(&self) -> intake::TracePolicy {
        let (table, default) = (&self.traces, intake::TracePolicy::default());
        intake::TracePolicy {
            is_enabled: table.enabled.unwrap_or(default.is_enabled),
            buffer_time: duration_or(table.buffer_time, default.buffer_time),
            buffer_bytes_max: table.max_buffer.map_or(default.buffer_bytes_max, Size::in_memory),
            trace_bytes_max: table.max_trace_size.map_or(default.trace_bytes_max, Size::in_memory),
        }
    }

    /// How the store keeps whole traces.
    pub(crate) fn traces(&self) -> store::TraceOptions {
        let (table, default) = (&self.traces, store::TraceOptions::default());
        let retention = table.retention.map(|retention| retention.0.as_nanos());
        let retention = retention.map(|ns| i64::try_from(ns).unwrap_or(i64::MAX));
        store::TraceOptions {
            bytes_max: table.max_size.map_or(default.bytes_max, |size| size.0),
            retention: retention.unwrap_or(default.retention),
        }
    }

    pub(crate) fn journal_bytes(&self) -> u64 {
        self.journal.max_size.map_or(JOURNAL_BYTES, |size| size.0)
    }
}
