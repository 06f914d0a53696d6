//! State of the capture for `/v1/status`, as of the last interval.

use std::sync::{Arc, Mutex, PoisonError};

use role::json::Json::{self, Bool, Integer, List, Null, Object, Text};
use role::json::integer;
use wire::{
    DetectedServices, InFlightSummary, LeftOutLibraries, RingStatistics, TlsTotals, WaitRules,
};

use crate::service_record::ServiceRecord;

/// Statements with requests in flight that are listed, those with the oldest requests.
const IN_FLIGHT_MAX: usize = 100;

/// State of the capture. Cheap to clone; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct CaptureStatus(Arc<Mutex<StatusFields>>);

#[derive(Clone, Debug)]
struct StatusFields {
    interfaces: Vec<String>,
    is_capturing: bool,
    /// The last error of the capture.
    error: Option<String>,
    /// `None` if ports are not detected.
    ports: Option<DetectedServices>,
    as_of: Option<i64>,
    ring: RingStatistics,
    tls: Option<TlsStatus>,
    services: Vec<Json>,
    in_flight: Vec<Json>,
}

/// State of the probes at TLS libraries.
#[derive(Clone, Debug)]
struct TlsStatus {
    /// Files with probes, or why there are none.
    files: Result<Vec<String>, String>,
    left_out: LeftOutLibraries,
    totals: TlsTotals,
    lost_events: u64,
}

impl CaptureStatus {
    /// A capture of these interfaces, or of all if empty.
    pub(crate) fn new(interfaces: &[String]) -> CaptureStatus {
        CaptureStatus(Arc::new(Mutex::new(StatusFields {
            interfaces: interfaces.to_vec(),
            is_capturing: true,
            error: None,
            ports: None,
            as_of: None,
            ring: RingStatistics::default(),
            tls: None,
            services: Vec::new(),
            in_flight: Vec::new(),
        })))
    }

    /// A capture that could not start.
    pub(crate) fn failed(interfaces: &[String], error: String) -> CaptureStatus {
        let status = CaptureStatus::new(interfaces);
        status.update(|fields| {
            fields.is_capturing = false;
            fields.error = Some(error);
        });
        status
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.update(|fields| fields.is_capturing)
    }

    /// Notes an error of a running capture.
    pub(crate) fn set_error(&self, error: String) {
        self.update(|fields| fields.error = Some(error));
    }

    /// Notes the ports that were detected.
    pub(crate) fn set_ports(&self, ports: DetectedServices) {
        self.update(|fields| fields.ports = Some(ports));
    }

    /// The ports that were detected; `None` if none are.
    pub(crate) fn ports(&self) -> Option<DetectedServices> {
        self.update(|fields| fields.ports.clone())
    }

    pub(crate) fn set_stopped(&self) {
        self.update(|fields| fields.is_capturing = false);
    }

    /// Notes the files of TLS libraries that are read, or why they are not.
    pub(crate) fn set_tls(&self, files: Result<Vec<String>, String>, left_out: LeftOutLibraries) {
        let (totals, lost_events) = (TlsTotals::default(), 0);
        let tls = TlsStatus { files, left_out, totals, lost_events };
        self.update(|fields| fields.tls = Some(tls));
    }

    /// Whether TLS libraries cannot be read.
    pub(crate) fn has_tls_error(&self) -> bool {
        self.update(|fields| fields.tls.as_ref().is_some_and(|tls| tls.files.is_err()))
    }

    /// Replaces the values by those at the end of an interval.
    pub(crate) fn set_interval(
        &self,
        end: i64,
        services: &[ServiceRecord],
        in_flight: &[InFlightSummary],
        ring: RingStatistics,
        tls_totals: &TlsTotals,
        lost_tls_events: u64,
    ) {
        let pending = |index: usize| {
            let own = in_flight.iter().filter(|summary| summary.service == index);
            own.map(|summary| summary.requests).sum()
        };
        let all = services.iter().enumerate();
        let rows = all.map(|(index, service)| service_json(service, pending(index))).collect();
        let oldest = in_flight.iter().take(IN_FLIGHT_MAX);
        let oldest = oldest.map(|summary| request_json(summary, services)).collect();
        self.update(|fields| {
            fields.as_of = Some(end);
            fields.ring = ring;
            if let Some(tls) = &mut fields.tls {
                tls.totals = tls_totals.clone();
                tls.lost_events = lost_tls_events;
            }
            fields.services = rows;
            fields.in_flight = oldest;
        });
    }

    fn update<T>(&self, change: impl FnOnce(&mut StatusFields) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn json(&self) -> Json {
        let fields = self.update(|fields| fields.clone());
        Object(vec![
            ("capturing", Bool(fields.is_capturing)),
            ("error", fields.error.map_or(Null, Text)),
            ("interfaces", List(fields.interfaces.into_iter().map(Text).collect())),
            ("ports", fields.ports.map_or(Null, ports_json)),
            ("as_of_ns", fields.as_of.map_or(Null, |at| Integer(at.into()))),
            ("packets", integer(fields.ring.packets)),
            ("dropped_packets", integer(fields.ring.drops)),
            ("tls", fields.tls.map_or(Null, tls_json)),
            ("services", List(fields.services)),
            ("in_flight", List(fields.in_flight)),
        ])
    }
}

fn ports_json(ports: DetectedServices) -> Json {
    let list = |ports: Vec<String>| List(ports.into_iter().map(Text).collect());
    Object(vec![
        ("decoded", list(ports.decoded)),
        ("not_decoded", list(ports.not_decoded)),
        ("not_decoded_count", integer(ports.not_decoded_count as u64)),
    ])
}

fn tls_json(tls: TlsStatus) -> Json {
    let (files, error) = match tls.files {
        Ok(files) => (files, Null),
        Err(error) => (Vec::new(), Text(error)),
    };
    Object(vec![
        ("files", List(files.into_iter().map(Text).collect())),
        ("error", error),
        ("left_out", List(tls.left_out.files.into_iter().map(Text).collect())),
        ("left_out_count", integer(tls.left_out.count)),
        ("sessions", integer(tls.totals.sessions)),
        ("bytes", integer(tls.totals.bytes)),
        ("without_socket_bytes", integer(tls.totals.without_socket_bytes)),
        ("without_service_bytes", integer(tls.totals.without_service_bytes)),
        ("other_end_bytes", integer(tls.totals.other_end_bytes)),
        ("lost_events", integer(tls.lost_events)),
    ])
}

fn service_json(service: &ServiceRecord, in_flight: u64) -> Json {
    let found = service.completeness();
    let reasons = found.not_measured.by_reason();
    let reasons = reasons.map(|(reason, requests)| (reason.to_owned(), integer(requests)));
    let requests = found.measured + found.not_measured.total() + in_flight;
    Object(vec![
        ("service", Text(service.name().to_owned())),
        ("protocol", Text(service.protocol().to_owned())),
        ("requests", integer(requests)),
        ("measured", integer(found.measured)),
        ("waits", integer(found.waits)),
        ("not_measured", Json::Map(reasons.into())),
        ("in_flight", integer(in_flight)),
        ("gaps", integer(found.gaps)),
        ("gap_bytes", integer(found.gap_bytes)),
        ("encrypted_connections", integer(found.encrypted_connections)),
        ("encrypted_bytes", integer(found.encrypted_bytes)),
        ("tls_sessions", integer(found.library_sessions)),
        ("tls_bytes", integer(found.library_bytes)),
        ("proposed_waits", List(proposals_json(service))),
    ])
}

fn proposals_json(service: &ServiceRecord) -> Vec<Json> {
    let proposals = service.proposals().proposals().into_iter();
    let json = proposals.map(|((verb, statement), proposed)| {
        Object(vec![
            ("wait", Text(WaitRules::rule_of(verb, statement))),
            ("timeout_ns", integer(proposed.timeout.as_nanos() as u64)),
            ("operations", integer(proposed.operations)),
            ("long_operations", integer(proposed.long_operations)),
        ])
    });
    json.collect()
}

fn request_json(summary: &InFlightSummary, services: &[ServiceRecord]) -> Json {
    let service = &services[summary.service];
    Object(vec![
        ("service", Text(service.name().to_owned())),
        ("protocol", Text(service.protocol().to_owned())),
        ("verb", Text(summary.verb.clone())),
        ("statement", Text(summary.statement.clone())),
        ("wait", Bool(summary.is_wait)),
        ("requests", integer(summary.requests)),
        ("oldest_ns", integer(summary.oldest)),
    ])
}
