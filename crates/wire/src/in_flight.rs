//! Requests in flight, by service and statement.

use std::collections::HashMap;

use protocol::fingerprint::RouteTemplates;
use protocol::observer::{ObservedRequest, PacketTime};

use crate::statement_normalizer::StatementNormalizer;

/// Requests of one statement in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightSummary {
    /// Index of the service.
    pub service: usize,
    /// Kind of request.
    pub verb: String,
    /// The statement without literal values.
    pub statement: String,
    /// Whether the requests wait by design.
    pub is_wait: bool,
    /// Their number.
    pub requests: u64,
    /// First byte of the oldest one.
    pub oldest: PacketTime,
}

/// Service, verb, statement, and whether it is a wait.
type SummaryKey = (usize, String, String, bool);

#[derive(Default)]
pub(crate) struct InFlightCounter {
    normalizer: StatementNormalizer,
    /// Number of requests and time of the oldest one.
    requests: HashMap<SummaryKey, (u64, PacketTime)>,
}

impl InFlightCounter {
    pub(crate) fn add(
        &mut self,
        service: usize,
        protocol: &str,
        request: &ObservedRequest<'_>,
        routes: &RouteTemplates,
    ) {
        let mut statement = String::new();
        let (syntax, text) = (request.syntax, request.statement);
        self.normalizer.append(syntax, text, protocol, routes, &mut statement);
        let key = (service, request.verb.to_owned(), statement, request.is_wait);
        let (requests, oldest) = self.requests.entry(key).or_insert((0, request.since));
        *requests += 1;
        *oldest = request.since.min(*oldest);
    }

    /// Oldest first.
    pub(crate) fn into_summaries(self) -> Vec<InFlightSummary> {
        let summary = |(key, (requests, oldest)): (SummaryKey, (u64, PacketTime))| {
            let (service, verb, statement, is_wait) = key;
            InFlightSummary { service, verb, statement, is_wait, requests, oldest }
        };
        let mut summaries: Vec<InFlightSummary> = self.requests.into_iter().map(summary).collect();
        let names = |of: &InFlightSummary| (of.service, of.verb.clone(), of.statement.clone());
        summaries.sort_by_cached_key(|summary| (summary.oldest, names(summary)));
        summaries
    }
}
