//! The node's own settings as its parts want them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use net::tls::ServerTls;
use role::settings::{Size, length_or};

use crate::settings::NodeSettings;

/// Where OTLP is expected, over gRPC and over HTTP.
pub(crate) const OTLP_PORTS: [u16; 2] = [4317, 4318];
/// Bytes that a journal may take by default.
const JOURNAL_BYTES: u64 = 10 << 30;

impl NodeSettings {
    /// Where HTTP is listened to.
    pub(crate) fn http_addresses(&self) -> Vec<SocketAddr> {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match &self.http.listen {
            Some(addresses) => addresses.clone(),
            None => [api::PORT].into_iter().chain(OTLP_PORTS).map(local).collect(),
        }
    }

    pub(crate) fn server(&self, data: &Path) -> api::Settings {
        let tls = self.http.tls.as_ref().map(|tls| ServerTls {
            certificate: tls.certificate.to_path_buf(),
            key: tls.key.to_path_buf(),
            client_ca: tls.client_ca.as_ref().map(|path| path.to_path_buf()),
        });
        let listen = self.http_addresses().into_iter();
        let (limits, default) = (&self.http.limits, api::Limits::default());
        let bytes = |size: Option<Size>, default| size.map_or(default, Size::in_memory);
        api::Settings {
            listen: listen.map(|address| api::Listen { address, tls: tls.clone() }).collect(),
            tokens: Some(crate::token::file(data)),
            tokens_required: self.http.tokens_required,
            hosts: self.http.hosts.clone(),
            limits: api::Limits {
                body_bytes: bytes(limits.body_bytes, default.body_bytes),
                bodies_bytes: bytes(limits.bodies_bytes, default.bodies_bytes),
                answers_bytes: bytes(limits.answers_bytes, default.answers_bytes),
                body_time: length_or(limits.body_time, default.body_time),
                head_bytes: bytes(limits.head_bytes, default.head_bytes),
                head_time: length_or(limits.head_time, default.head_time),
                request_time: length_or(limits.request_time, default.request_time),
                write_time: length_or(limits.write_time, default.write_time),
                idle_time: length_or(limits.idle_time, default.idle_time),
                connections: limits.connections.unwrap_or(default.connections),
                decoding: default.decoding,
            },
        }
    }

    pub(crate) fn desk(&self, data: &Path) -> api::DeskSettings {
        let default = api::DeskSettings::default();
        api::DeskSettings {
            queries_max: self.http.limits.queries.unwrap_or(default.queries_max),
            query_bytes: self.http.limits.query_bytes.map_or(default.query_bytes, |size| size.0),
            snapshots: Some(data.join("snapshots")),
            boards: Some(data.join("boards")),
            answer_bytes_max: self.server(data).limits.answer_bytes_max(),
            ..default
        }
    }

    pub(crate) fn intake(&self) -> intake::Settings {
        let default = intake::Settings::default();
        intake::Settings {
            level: self.acknowledge.0,
            interval: length_or(self.interval, default.interval),
            publish: true,
            ..default
        }
    }

    pub(crate) fn journal_bytes(&self) -> u64 {
        self.journal.size.map_or(JOURNAL_BYTES, |size| size.0)
    }
}
