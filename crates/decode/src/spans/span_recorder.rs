//! Spans to rows: durations and counts of each series and second, and exemplars.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{HashMap, HashSet};

use hist::Histogram;
use hist::codec::header::Temporality;
use model::{
    Exemplar, ExemplarSource, LadderCell, Sample, SampleValue, Series, SeriesKind,
    span_sampling_key,
};
use protocol::fingerprint::SqlDialect;

use super::adjusted_count::AdjustedCount;
use super::span_message::{SpanIds, SpanKind, SpanMessage, SpanResource, StatusCode};
use super::span_name::{SpanNameTemplates, is_statement};
use super::span_sample::{SpanCandidate, SpanSample};
use super::trace::RawSpan;
use super::{CALLS_METRIC, DURATION_METRIC, OTHER_NAME, SpanProblem, SpanSummary};
use crate::exemplar::ExemplarProblem;
use crate::series_sink::{SeriesSink, pass_exemplar};

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
/// Nanoseconds of a millisecond, the unit of durations.
const MILLISECOND: f64 = 1e6;
/// Histograms in memory; beyond them they are written, so that the memory of a request is bounded.
const SLOTS_MAX: usize = 8192;
/// Names of a request whose templates are in memory.
const TEMPLATES_MAX: usize = 65_536;

/// A series of spans, by its labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct SpanGroup {
    service: String,
    namespace: String,
    name: String,
    kind: SpanKind,
    status: StatusCode,
}

/// A span's series as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RawGroup<'a> {
    /// Number of the resource.
    resource: usize,
    name: &'a str,
    /// 0 if the name is no statement.
    dialect: u8,
    kind: SpanKind,
    status: StatusCode,
}

/// Spans of a series that ended in a second.
#[derive(Debug, Default)]
struct SpanSlot {
    durations: Histogram,
    carry: u64,
    spans: u64,
    other_names: u64,
    ignored_thresholds: u64,
}

/// See the module. Spans are borrowed from the request.
pub(super) struct SpanRecorder<'a, 's> {
    sink: &'s mut dyn SeriesSink,
    summary: SpanSummary,
    templates: SpanNameTemplates,
    /// Resources with spans; the last one is that of the next span, unless another one is pending.
    resources: Vec<SpanResource>,
    pending_resource: Option<SpanResource>,
    raw_groups: HashMap<RawGroup<'a>, (usize, bool)>,
    groups: Vec<SpanGroup>,
    group_numbers: HashMap<SpanGroup, usize>,
    /// By group and the end of the second.
    slots: HashMap<(usize, i64), SpanSlot>,
    /// By group and minute.
    samples: HashMap<(usize, i64), SpanSample<'a>>,
    /// Ids and kinds.
    seen: HashSet<(SpanIds, SpanKind)>,
}

impl SpanGroup {
    /// Key and series of a metric of the group.
    fn key(&self, metric: u8) -> Vec<u8> {
        let mut key = vec![metric, self.kind.number(), self.status.number()];
        for text in [&self.service, &self.namespace, &self.name] {
            key.extend_from_slice(&(text.len() as u64).to_le_bytes());
            key.extend_from_slice(text.as_bytes());
        }
        key
    }

    fn series(&self, name: &str, kind: SeriesKind) -> Series {
        Series::new(name, kind).with_labels([
            ("service.name", self.service.as_str()),
            ("service.namespace", self.namespace.as_str()),
            ("span.kind", self.kind.name()),
            ("span.name", self.name.as_str()),
            ("status.code", self.status.name()),
        ])
    }

    fn durations(&self) -> model::Result<Series> {
        let kind = SeriesKind::Histogram(Temporality::Delta);
        self.series(DURATION_METRIC, kind).with_unit("ms").validate()
    }

    fn calls(&self) -> model::Result<Series> {
        self.series(CALLS_METRIC, SeriesKind::Counter(Temporality::Delta)).validate()
    }
}

impl<'a, 's> SpanRecorder<'a, 's> {
    pub(super) fn new(sink: &'s mut dyn SeriesSink) -> SpanRecorder<'a, 's> {
        sink.description(DURATION_METRIC, "Durations of spans");
        sink.description(CALLS_METRIC, "Number of spans");
        SpanRecorder {
            sink,
            summary: SpanSummary::default(),
            templates: SpanNameTemplates::default(),
            resources: Vec::new(),
            pending_resource: None,
            raw_groups: HashMap::new(),
            groups: Vec::new(),
            group_numbers: HashMap::new(),
            slots: HashMap::new(),
            samples: HashMap::new(),
            seen: HashSet::new(),
        }
    }

    /// Sets the resource of the following spans.
    pub(super) fn set_resource(&mut self, resource: SpanResource) {
        self.pending_resource = Some(resource);
    }

    /// Records a span of a resource and a scope, which are messages.
    pub(super) fn record(&mut self, span: SpanMessage<'a>, (resource, scope): (&[u8], &[u8])) {
        let (ids, start, end) = match times_and_ids(&span) {
            Ok(valid) => valid,
            Err(problem) => return self.summary.reject(problem, span.name),
        };
        if !self.seen.insert((ids, span.kind)) {
            return self.summary.reject(SpanProblem::Duplicate, span.name);
        }
        let value = end.saturating_sub(start) as f64 / MILLISECOND;
        let root = span.parent_id.iter().all(|byte| *byte == 0).then(|| LadderCell::of(value));
        self.sink.span(&RawSpan { trace_id: ids.0, resource, scope, span: span.bytes() }, root);
        if let Some(resource) = self.pending_resource.take()
            && self.resources.last() != Some(&resource)
        {
            self.resources.push(resource);
        }
        let count = AdjustedCount::from_trace_state(span.trace_state);
        let (group, is_other) = self.group_of(&span);
        let key = span_sampling_key(&ids.0, &ids.1);
        let slot_end = end_of_slot(end);
        let slot = self.slots.entry((group, slot_end)).or_insert_with(|| {
            // Independent of the sample, which prefers low keys.
            SpanSlot { carry: model::splitmix64(key), ..SpanSlot::default() }
        });
        let n = count.unwrap_or(AdjustedCount::ONE).round(&mut slot.carry);
        slot.durations.record_n(value, n);
        slot.spans = slot.spans.saturating_add(1);
        slot.other_names = slot.other_names.saturating_add(is_other.into());
        slot.ignored_thresholds = slot.ignored_thresholds.saturating_add(count.is_none().into());
        let resource = self.resources.len().saturating_sub(1);
        let (trace_id, span_id) = ids;
        let candidate = SpanCandidate { key, value, time: end, trace_id, span_id, resource, span };
        match self.samples.entry((group, end.div_euclid(MINUTE))) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut().offer(candidate),
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(SpanSample::new(candidate));
            }
        }
        if self.slots.len() >= SLOTS_MAX {
            self.write();
        }
    }

    /// Number of a span's group, and whether its name is beyond the limit.
    fn group_of(&mut self, span: &SpanMessage<'a>) -> (usize, bool) {
        let dialect = is_statement(span.name).then(|| span.dialect());
        let raw = RawGroup {
            resource: self.resources.len().saturating_sub(1),
            name: span.name,
            dialect: match dialect {
                None => 0,
                Some(SqlDialect::Postgres) => 1,
                Some(SqlDialect::Mysql) => 2,
                Some(SqlDialect::Cql) => 3,
            },
            kind: span.kind,
            status: span.status,
        };
        if let Some(known) = self.raw_groups.get(&raw) {
            return *known;
        }
        let SpanResource { service, namespace, .. } =
            self.resources.last().cloned().unwrap_or_default();
        let mut name = String::new();
        self.templates.write(span.name, dialect.unwrap_or(SqlDialect::Postgres), &mut name);
        let (kind, status) = (span.kind, span.status);
        let group = SpanGroup { service, namespace, name, kind, status };
        let (group, is_other) = self.admit(group);
        let number = *self.group_numbers.entry(group.clone()).or_insert_with(|| {
            self.groups.push(group);
            self.groups.len().saturating_sub(1)
        });
        if self.raw_groups.len() < TEMPLATES_MAX {
            self.raw_groups.insert(raw, (number, is_other));
        }
        (number, is_other)
    }

    /// The group, or that of other names.
    fn admit(&mut self, mut group: SpanGroup) -> (SpanGroup, bool) {
        let SpanGroup { service, namespace, name, .. } = &group;
        if self.sink.admits_span_name(service, namespace, name) {
            return (group, false);
        }
        let is_service_known = self.sink.admits_span_name(service, namespace, OTHER_NAME);
        OTHER_NAME.clone_into(&mut group.name);
        if !is_service_known {
            OTHER_NAME.clone_into(&mut group.service);
            group.namespace.clear();
        }
        (group, true)
    }

    /// Writes what was recorded, and counts it.
    pub(super) fn finish(mut self) -> SpanSummary {
        self.write();
        self.sink.count_spans(&self.summary);
        self.summary
    }

    /// Writes what was recorded.
    fn write(&mut self) {
        let mut slots: Vec<_> = self.slots.drain().collect();
        slots.sort_unstable_by_key(|(key, _)| *key);
        let mut samples: Vec<_> = self.samples.drain().collect();
        samples.sort_unstable_by_key(|(key, _)| *key);
        let mut samples = samples.iter().peekable();
        for slots in slots.chunk_by(|a, b| a.0.0 == b.0.0) {
            let Some(number) = slots.first().map(|(key, _)| key.0) else { continue };
            let Some(group) = self.groups.get(number) else { continue };
            let written = write_rows(group, slots, &mut *self.sink, &mut self.summary);
            while let Some((_, sample)) = samples.next_if(|(key, _)| key.0 == number) {
                if written {
                    write_exemplars(group, sample, &self.resources, &mut *self.sink);
                }
            }
        }
    }
}

/// Ids and times of a valid span.
fn times_and_ids(span: &SpanMessage<'_>) -> Result<(SpanIds, i64, i64), SpanProblem> {
    let ids = span.ids().ok_or(SpanProblem::MalformedId)?;
    let time = |ns: u64| i64::try_from(ns).map_err(|_| SpanProblem::InvalidTime);
    let (start, end) = (time(span.start)?, time(span.end)?);
    match (start, end) {
        (_, 0) => Err(SpanProblem::NoEnd),
        (0, _) => Err(SpanProblem::NoStart),
        (start, end) if end < start => Err(SpanProblem::EndsBeforeStart),
        (_, end) if end > i64::MAX.saturating_sub(SECOND) => Err(SpanProblem::InvalidTime),
        _ => Ok((ids, start, end)),
    }
}

/// End of the second in which a span ended: a whole second is the end of its own.
fn end_of_slot(end: i64) -> i64 {
    let before = end.saturating_sub(1).div_euclid(SECOND);
    before.saturating_add(1).saturating_mul(SECOND)
}

/// Writes the rows of a group. Returns whether it has any.
fn write_rows(
    group: &SpanGroup,
    slots: &[((usize, i64), SpanSlot)],
    sink: &mut dyn SeriesSink,
    summary: &mut SpanSummary,
) -> bool {
    let refusal = sink.series(&group.key(0), &mut || group.durations()).err();
    let (mut is_written, mut is_reported) = (false, false);
    for ((_, end), slot) in slots {
        let sample = Sample {
            start: end.saturating_sub(SECOND),
            end: *end,
            value: SampleValue::Histogram(Box::new(slot.durations.clone())),
        };
        match refusal.clone().or_else(|| sink.sample(&sample).err()) {
            None => {
                is_written = true;
                summary.measured = summary.measured.saturating_add(slot.spans);
                summary.other_names = summary.other_names.saturating_add(slot.other_names);
                summary.ignored_thresholds =
                    summary.ignored_thresholds.saturating_add(slot.ignored_thresholds);
            }
            Some(error) => {
                summary.count(SpanProblem::RefusedSeries, slot.spans);
                summary.refused_rows = summary.refused_rows.saturating_add(1);
                if !std::mem::replace(&mut is_reported, true) {
                    summary.report(&group.name, &error.to_string());
                }
            }
        }
    }
    // A histogram without its counter is complete.
    if is_written && sink.series(&group.key(1), &mut || group.calls()).is_ok() {
        for ((_, end), slot) in slots {
            let start = end.saturating_sub(SECOND);
            let value = SampleValue::Number(slot.durations.count() as f64);
            let _ = sink.sample(&Sample { start, end: *end, value });
        }
    }
    is_written
}

fn write_exemplars(
    group: &SpanGroup,
    sample: &SpanSample<'_>,
    resources: &[SpanResource],
    sink: &mut dyn SeriesSink,
) {
    let (series_key, mut series) = (group.key(0), || group.durations());
    if let Some(first) = sample.iter().next() {
        sink.span_counts(&series_key, first.time, sample.counts());
    }
    for candidate in sample.iter() {
        let SpanCandidate { key, value, time, trace_id, span_id, resource, span } = candidate;
        if !sink.wants_span(&series_key, *time, *value, *key) {
            continue;
        }
        let instance = resources.get(*resource).map_or(&[][..], |resource| &resource.instance);
        let (attributes, is_cut) = span.exemplar_attributes(instance);
        let exemplar = Exemplar {
            time: *time,
            value: *value,
            trace_id: *trace_id,
            span_id: *span_id,
            attributes,
            source: ExemplarSource::Span,
        };
        if pass_exemplar(sink, &series_key, &mut series, &Ok(exemplar)) && is_cut {
            sink.exemplar_problem(ExemplarProblem::Truncated);
        }
    }
}
