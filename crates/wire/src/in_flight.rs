//! Requests in flight, by service and statement.

use std::collections::HashMap;

use protocol::observer::{ObservedRequest, PacketTime};

use crate::statement_normalizer::FingerprintWriter;
use crate::statement_texts::StatementTexts;

/// Statement of the requests beyond it.
const OTHER_STATEMENT: &str = "other";

/// Requests of one statement in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightSummary {
    /// Index of the service.
    pub service: usize,
    /// Kind of request.
    pub verb: String,
    /// The statement without literal values; `other` for the youngest requests, if the texts of all
    /// are more than [`in_flight_bytes_max`](crate::TrackerSettings::in_flight_bytes_max).
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

/// Which requests are normalized: all, or the oldest ones.
#[derive(Default)]
pub(crate) struct NormalizedRequests {
    /// Time of each request, and bytes of its text.
    texts: Vec<(PacketTime, usize)>,
}

impl NormalizedRequests {
    pub(crate) fn add(&mut self, request: &ObservedRequest<'_>) {
        self.texts.push((request.since, request.statement.len()));
    }

    /// The time after which requests are not normalized, because the texts before have `bytes_max`.
    pub(crate) fn last_time(mut self, bytes_max: usize) -> PacketTime {
        let bytes: usize = self.texts.iter().map(|(_, bytes)| bytes).sum();
        if bytes <= bytes_max {
            return PacketTime::MAX;
        }
        self.texts.sort_unstable();
        let mut free = bytes_max;
        let mut last = 0;
        for (since, bytes) in self.texts {
            match free.checked_sub(bytes) {
                Some(rest) => free = rest,
                None => break,
            }
            last = since;
        }
        last
    }
}

pub(crate) struct InFlightCounter<'a> {
    texts: &'a StatementTexts,
    writer: FingerprintWriter,
    /// Requests after this time are not normalized.
    last_time: PacketTime,
    /// Number of requests and time of the oldest one.
    requests: HashMap<SummaryKey, (u64, PacketTime)>,
}

impl<'a> InFlightCounter<'a> {
    pub(crate) fn new(texts: &'a StatementTexts, last_time: PacketTime) -> InFlightCounter<'a> {
        let (writer, requests) = (FingerprintWriter::default(), HashMap::new());
        InFlightCounter { texts, writer, last_time, requests }
    }

    pub(crate) fn add(&mut self, service: usize, protocol: &str, request: &ObservedRequest<'_>) {
        let mut statement = String::new();
        let (syntax, text) = (request.syntax, request.statement);
        if request.since <= self.last_time {
            let writer = &mut self.writer;
            let normalizer = &self.texts.normalizer;
            normalizer.append_unrecorded(syntax, text, protocol, writer, &mut statement);
        } else {
            statement.push_str(OTHER_STATEMENT);
        }
        let is_wait = request.is_wait || self.texts.waits.contains(request.verb, &statement);
        let key = (service, request.verb.to_owned(), statement, is_wait);
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

#[cfg(test)]
mod tests {
    use protocol::fingerprint::RouteTemplates;
    use protocol::observer::StatementSyntax;

    use super::*;
    use crate::wait_rules::WaitRules;

    const TEXT_BYTES_MAX: usize = 1 << 20;

    fn request(statement: &str, since: PacketTime) -> ObservedRequest<'_> {
        let syntax = StatementSyntax::Sql;
        ObservedRequest { verb: "Query", statement, syntax, is_wait: false, since }
    }

    /// Statements with their requests, oldest first.
    #[track_caller]
    fn check(requests: &[ObservedRequest<'_>], expected: &[(&str, u64)]) {
        let shared = StatementTexts::new(RouteTemplates::default(), 1 << 20, 1 << 20);
        let mut texts = NormalizedRequests::default();
        requests.iter().for_each(|request| texts.add(request));
        let mut counter = InFlightCounter::new(&shared, texts.last_time(TEXT_BYTES_MAX));
        requests.iter().for_each(|request| counter.add(0, "postgres", request));
        let summaries = counter.into_summaries();
        let found = summaries.iter().map(|summary| (&*summary.statement, summary.requests));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn requests_of_a_statement_are_counted() {
        let requests = [request("select 1", 20), request("select 2", 10), request("begin", 5)];
        check(&requests, &[("begin", 1), ("select $1", 2)]);
    }

    #[test]
    fn statements_that_the_user_counts_as_waits_wait() {
        let mut shared = StatementTexts::new(RouteTemplates::default(), 1 << 20, 1 << 20);
        shared.waits = WaitRules::new(vec!["Query select poll($1)".to_owned()]).unwrap();
        let mut counter = InFlightCounter::new(&shared, PacketTime::MAX);
        for text in ["select poll(5)", "select 7"] {
            counter.add(0, "postgres", &request(text, 10));
        }
        let waits = counter.into_summaries().into_iter().map(|of| (of.statement, of.is_wait));
        let expected = [("select $1".to_owned(), false), ("select poll($1)".to_owned(), true)];
        assert_eq!(waits.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn of_many_long_texts_the_oldest_are_normalized() {
        let long = format!("select '{}'", "x".repeat(TEXT_BYTES_MAX / 4));
        let requests: Vec<_> = (1..=6).rev().map(|since| request(&long, since)).collect();
        check(&requests, &[("select $1", 3), ("other", 3)]);
    }
}
