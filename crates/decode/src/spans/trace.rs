//! Whole traces: what is stored of their spans, and their spans as they are read back.
//!
//! Stored spans are an OTLP `TracesData` with the fields of
//! [`message_fields`](crate::otlp::message_fields). Reading is lenient: other nodes wrote them, and
//! damage costs the rest of a message only.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{HashMap, HashSet};

use codecs::protobuf::MessageReader;

pub use crate::otlp::message_copy::{AttributeAction, AttributeFilter};

use crate::exemplar::read_hex;
use crate::otlp::attributes::parse_label;
use crate::otlp::message_copy::{MessageCopier, put_bytes};
use crate::otlp::message_fields::{OtlpField, RESOURCE, SCOPE, SPAN};
use crate::otlp::message_json::{hex, write_message};

use super::span_message::SpanMessage;

/// Maximum length of each list of [`TraceProblems`].
const PROBLEMS_MAX: usize = 1000;

/// A span of a request, with its resource and scope, as messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSpan<'a> {
    /// Its trace.
    pub trace_id: [u8; 16],
    /// `Resource`.
    pub resource: &'a [u8],
    /// `InstrumentationScope`.
    pub scope: &'a [u8],
    /// `Span`.
    pub span: &'a [u8],
}

/// Appends spans as they are stored; returns how many of them were shortened. Those of a resource
/// and a scope follow each other and share both messages: they are compared by address.
pub fn encode(spans: &[RawSpan<'_>], filter: AttributeFilter<'_>, out: &mut Vec<u8>) -> u64 {
    let mut truncated = 0_u64;
    let is_same = |a: &RawSpan<'_>, b: &RawSpan<'_>| {
        std::ptr::eq(a.resource, b.resource) && std::ptr::eq(a.scope, b.scope)
    };
    for group in spans.chunk_by(is_same) {
        let Some(first) = group.first() else { continue };
        let copy = |message: &[u8], fields: &'static [OtlpField]| {
            let (mut copier, mut copied) = (MessageCopier { filter, is_cut: false }, Vec::new());
            // A malformed attribute costs the rest of its message.
            let is_whole = copier.copy(MessageReader::new(message), fields, &mut copied).is_ok();
            (copied, copier.is_cut || !is_whole)
        };
        let (mut scope_spans, mut resource_spans) = (Vec::new(), Vec::new());
        if !first.scope.is_empty() {
            put_bytes(&mut scope_spans, 1, &copy(first.scope, &SCOPE).0);
        }
        for span in group {
            let (copied, is_cut) = copy(span.span, &SPAN);
            truncated = truncated.saturating_add(is_cut.into());
            put_bytes(&mut scope_spans, 2, &copied);
        }
        if !first.resource.is_empty() {
            put_bytes(&mut resource_spans, 1, &copy(first.resource, &RESOURCE).0);
        }
        put_bytes(&mut resource_spans, 2, &scope_spans);
        put_bytes(out, 1, &resource_spans);
    }
    truncated
}

/// A stored span.
#[derive(Clone, Debug)]
pub struct TraceSpan<'a> {
    /// Its id.
    pub span_id: [u8; 8],
    /// Id of its parent; `None` of a root.
    pub parent_id: Option<[u8; 8]>,
    /// Its name, as it was received.
    pub name: &'a str,
    /// `SpanKind`.
    pub kind: u8,
    /// `StatusCode`.
    pub status: u8,
    /// Start in nanoseconds since the Unix epoch.
    pub start: u64,
    /// End in nanoseconds since the Unix epoch.
    pub end: u64,
    resource: &'a [u8],
    scope: &'a [u8],
    /// Numbers of its resource and its scope: equal messages have equal ones.
    group: (usize, usize),
    message: &'a [u8],
}

/// A stored trace: each span once.
#[derive(Clone, Debug, Default)]
pub struct Trace<'a> {
    /// Its spans by resource and scope, each in the order of the first span, then by time.
    pub spans: Vec<TraceSpan<'a>>,
}

/// What is unusual about the tree of a trace's spans; at most 1,000 entries per list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceProblems {
    /// Spans whose parent is not among the spans, with the parent.
    pub missing_parents: Vec<([u8; 8], [u8; 8])>,
    /// Spans that are their own ancestors.
    pub cycles: Vec<[u8; 8]>,
    /// Spans beyond the times of their parent: span, parent, nanoseconds before its start and after
    /// its end. What producers and consumers do may end later.
    pub clock_skew: Vec<([u8; 8], [u8; 8], u64, u64)>,
}

impl<'a> TraceSpan<'a> {
    /// Names and values of its attributes, as texts.
    pub fn attributes(&self) -> impl Iterator<Item = (String, String)> + use<'a> {
        labels(self.message, 9)
    }

    /// Names and values of the attributes of its resource, as texts.
    pub fn resource_attributes(&self) -> impl Iterator<Item = (String, String)> + use<'a> {
        labels(self.resource, 1)
    }

    /// Name of its service; empty if unknown.
    pub fn service(&self) -> String {
        let mut attributes = self.resource_attributes();
        attributes.find(|(name, _)| name == "service.name").unwrap_or_default().1
    }
}

/// Attributes in a field of a message, until it is malformed.
fn labels(message: &[u8], number: u32) -> impl Iterator<Item = (String, String)> {
    let mut fields = MessageReader::new(message);
    std::iter::from_fn(move || {
        while let Ok(Some((found, field))) = fields.field() {
            if found == number
                && let Some(label) = field.message().ok().and_then(|it| parse_label(it).ok())
            {
                return Some(label);
            }
        }
        None
    })
}

/// Messages in a field of a message, until it is malformed.
fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    let mut fields = MessageReader::new(message);
    std::iter::from_fn(move || {
        while let Ok(Some((found, field))) = fields.field() {
            if found == number
                && let Ok(bytes) = field.bytes()
            {
                return Some(bytes);
            }
        }
        None
    })
}

impl<'a> Trace<'a> {
    /// Reads stored spans. Of spans with the same id and kind the first is read.
    pub fn read(stored: &'a [u8]) -> Trace<'a> {
        let (mut spans, mut seen) = (Vec::new(), HashSet::new());
        // Each message is compared once, however many spans have it.
        let (mut resources, mut scopes) = (HashMap::new(), HashMap::new());
        let number = |known: &mut HashMap<&'a [u8], usize>, message: &'a [u8]| {
            let next = known.len();
            *known.entry(message).or_insert(next)
        };
        for resource_spans in messages(stored, 1) {
            let resource = messages(resource_spans, 1).last().unwrap_or_default();
            let resource_number = number(&mut resources, resource);
            for scope_spans in messages(resource_spans, 2) {
                let scope = messages(scope_spans, 1).last().unwrap_or_default();
                let group = (resource_number, number(&mut scopes, scope));
                for message in messages(scope_spans, 2) {
                    let Ok(span) = SpanMessage::read(MessageReader::new(message)) else { continue };
                    let Some((_, span_id)) = span.ids() else { continue };
                    if !seen.insert((span_id, span.kind)) {
                        continue;
                    }
                    let parent_id = <[u8; 8]>::try_from(span.parent_id).ok();
                    spans.push(TraceSpan {
                        span_id,
                        parent_id: parent_id.filter(|id| *id != [0; 8]),
                        name: span.name,
                        kind: span.kind.number(),
                        status: span.status.number(),
                        start: span.start,
                        end: span.end,
                        resource,
                        scope,
                        group,
                        message,
                    });
                }
            }
        }
        spans.sort_unstable_by_key(|span| (span.group, span.start, span.span_id, span.kind));
        Trace { spans }
    }

    /// Its spans in their order, those of each resource together.
    pub fn by_resource(&self) -> impl Iterator<Item = &[TraceSpan<'a>]> {
        self.spans.chunk_by(|a, b| a.group.0 == b.group.0)
    }

    /// Spans by resource, then by scope.
    fn groups(&self) -> impl Iterator<Item = impl Iterator<Item = &[TraceSpan<'a>]>> {
        self.by_resource().map(|spans| spans.chunk_by(|a, b| a.group == b.group))
    }

    /// `TracesData` with each span once.
    pub fn to_protobuf(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for scopes in self.groups() {
            let mut resource_spans = Vec::new();
            for spans in scopes {
                let Some(first) = spans.first() else { continue };
                if resource_spans.is_empty() {
                    put_bytes(&mut resource_spans, 1, first.resource);
                }
                let mut scope_spans = Vec::new();
                put_bytes(&mut scope_spans, 1, first.scope);
                spans.iter().for_each(|span| put_bytes(&mut scope_spans, 2, span.message));
                put_bytes(&mut resource_spans, 2, &scope_spans);
            }
            put_bytes(&mut out, 1, &resource_spans);
        }
        out
    }

    /// The same in JSON: an object with `resourceSpans`.
    pub fn to_json(&self) -> String {
        let mut out = "{\"resourceSpans\":[".to_owned();
        let write = |message: &[u8], fields: &'static [OtlpField], out: &mut String| {
            write_message(&MessageReader::new(message), fields, out);
        };
        let mut before_resource = "{\"resource\":";
        for scopes in self.groups() {
            let mut before_scope = ",\"scopeSpans\":[{\"scope\":";
            for spans in scopes {
                let Some(first) = spans.first() else { continue };
                if before_scope.contains("scopeSpans") {
                    out.push_str(before_resource);
                    write(first.resource, &RESOURCE, &mut out);
                }
                out.push_str(before_scope);
                write(first.scope, &SCOPE, &mut out);
                let mut before_span = ",\"spans\":[";
                for span in spans {
                    out.push_str(before_span);
                    write(span.message, &SPAN, &mut out);
                    before_span = ",";
                }
                out.push_str("]}");
                before_scope = ",{\"scope\":";
            }
            out.push_str("]}");
            before_resource = ",{\"resource\":";
        }
        out.push_str("]}");
        out
    }

    /// The span that the others belong to: the earliest one without a parent among them, otherwise
    /// the earliest one whose parent is elsewhere.
    pub fn root(&self) -> Option<&TraceSpan<'a>> {
        let ids: HashSet<[u8; 8]> = self.spans.iter().map(|span| span.span_id).collect();
        self.spans.iter().min_by_key(|span| {
            let has_parent = span.parent_id.is_some_and(|parent| ids.contains(&parent));
            (has_parent, span.parent_id.is_some(), span.start)
        })
    }

    /// Nanoseconds of each span in which none of its children ran, in the order of the spans.
    pub fn self_times(&self) -> Vec<u64> {
        let mut places = HashMap::new();
        for (place, span) in self.spans.iter().enumerate() {
            places.entry(span.span_id).or_insert(place);
        }
        // By parent and start.
        let mut children: Vec<(usize, u64, u64)> = Vec::new();
        for (place, span) in self.spans.iter().enumerate() {
            let parent = span.parent_id.and_then(|parent| places.get(&parent).copied());
            if let Some(parent) = parent.filter(|parent| *parent != place) {
                children.push((parent, span.start, span.end));
            }
        }
        children.sort_unstable();
        let duration = |span: &TraceSpan<'_>| span.end.saturating_sub(span.start);
        let mut self_times: Vec<u64> = self.spans.iter().map(duration).collect();
        for children in children.chunk_by(|a, b| a.0 == b.0) {
            let Some(parent) = children.first().map(|(parent, ..)| *parent) else { continue };
            let (Some(span), Some(own)) = (self.spans.get(parent), self_times.get_mut(parent))
            else {
                continue;
            };
            let mut covered_to = span.start;
            for (_, start, end) in children {
                let (start, end) = ((*start).max(covered_to), (*end).min(span.end));
                *own = own.saturating_sub(end.saturating_sub(start));
                covered_to = covered_to.max(end);
            }
        }
        self_times
    }

    /// What is unusual about the tree.
    pub fn problems(&self) -> TraceProblems {
        let places = self.spans.iter().enumerate().map(|(place, span)| (span.span_id, place));
        let places: HashMap<[u8; 8], usize> = places.collect();
        let parent_of = |place: usize| {
            let parent = self.spans.get(place)?.parent_id?;
            places.get(&parent).copied()
        };
        let mut problems = TraceProblems::default();
        let push_bounded = |is: bool, length: usize| is && length < PROBLEMS_MAX;
        for span in &self.spans {
            let Some(parent_id) = span.parent_id else { continue };
            let Some(parent) = places.get(&parent_id).and_then(|place| self.spans.get(*place))
            else {
                if push_bounded(true, problems.missing_parents.len()) {
                    problems.missing_parents.push((span.span_id, parent_id));
                }
                continue;
            };
            let is_asynchronous = span.kind >= 4;
            let before = parent.start.saturating_sub(span.start);
            let after = if is_asynchronous { 0 } else { span.end.saturating_sub(parent.end) };
            if push_bounded(before > 0 || after > 0, problems.clock_skew.len()) {
                problems.clock_skew.push((span.span_id, parent_id, before, after));
            }
        }
        // Each span has one parent at most: a walk meets a span of its own path, or ends.
        let mut walk_of = vec![0; self.spans.len()];
        for start in 0..self.spans.len() {
            let walk = start.saturating_add(1);
            let mut place = Some(start);
            while let Some(at) = place.filter(|at| walk_of.get(*at) == Some(&0)) {
                walk_of[at] = walk;
                place = parent_of(at);
            }
            let Some(met) = place.filter(|at| walk_of.get(*at) == Some(&walk)) else { continue };
            let around =
                std::iter::successors(Some(met), |at| parent_of(*at).filter(|at| *at != met));
            let ids = around.filter_map(|at| Some(self.spans.get(at)?.span_id));
            let room = PROBLEMS_MAX.saturating_sub(problems.cycles.len());
            problems.cycles.extend(ids.take(room));
        }
        problems
    }
}

/// A trace id of up to 32 hexadecimal digits, not zero.
pub fn parse_trace_id(text: &str) -> Option<[u8; 16]> {
    let mut trace_id = [0; 16];
    // Some tools leave out leading zeros.
    let is_valid = !text.is_empty() && read_hex(&format!("{text:0>32}"), &mut trace_id);
    (is_valid && trace_id != [0; 16]).then_some(trace_id)
}

/// An id as hexadecimal digits.
pub fn id_text(id: &[u8]) -> String {
    hex(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(_: &str, _: &dyn Fn() -> String) -> AttributeAction {
        AttributeAction::Keep
    }

    fn attribute(number: u32, name: &str, text: &str) -> Vec<u8> {
        let (mut value, mut pair, mut out) = (Vec::new(), Vec::new(), Vec::new());
        put_bytes(&mut value, 1, text.as_bytes());
        put_bytes(&mut pair, 1, name.as_bytes());
        put_bytes(&mut pair, 2, &value);
        put_bytes(&mut out, number, &pair);
        out
    }

    fn span(id: u8, parent: u8, times: std::ops::Range<u64>, rest: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, &[7; 16]);
        put_bytes(&mut out, 2, &[id; 8]);
        if parent > 0 {
            put_bytes(&mut out, 4, &[parent; 8]);
        }
        put_bytes(&mut out, 5, b"GET /");
        out.push(7 << 3 | 1);
        out.extend_from_slice(&times.start.to_le_bytes());
        out.push(8 << 3 | 1);
        out.extend_from_slice(&times.end.to_le_bytes());
        out.extend_from_slice(rest);
        out
    }

    fn encoded(spans: &[Vec<u8>], filter: AttributeFilter<'_>) -> (Vec<u8>, u64) {
        let resource = attribute(1, "service.name", "shop");
        let raw = |span| RawSpan { trace_id: [7; 16], resource: &resource, scope: &[], span };
        let raw: Vec<RawSpan<'_>> = spans.iter().map(|span| raw(span)).collect();
        let mut out = Vec::new();
        let truncated = encode(&raw, filter, &mut out);
        (out, truncated)
    }

    #[test]
    fn stored_spans_are_json_as_of_otlp() {
        let event = {
            let (mut event, mut out) = (attribute(3, "a", "b"), Vec::new());
            put_bytes(&mut event, 2, b"exception");
            put_bytes(&mut out, 11, &event);
            out
        };
        let status = [15 << 3 | 2, 2, 3 << 3, 2];
        let rest = [&attribute(9, "user", "é\"")[..], &[6 << 3, 2], &event, &status].concat();
        let (stored, truncated) = encoded(&[span(1, 0, 5..9, &rest)], &keep);
        assert_eq!(truncated, 0);
        let trace = Trace::read(&stored);
        let user = r#"{"key":"user","value":{"stringValue":"é\""}}"#;
        let expected = [
            r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","#,
            r#""value":{"stringValue":"shop"}}]},"scopeSpans":[{"scope":{},"spans":["#,
            r#"{"traceId":"07070707070707070707070707070707","spanId":"0101010101010101","#,
            r#""name":"GET /","kind":2,"startTimeUnixNano":"5","endTimeUnixNano":"9","#,
            r#""attributes":["#,
            user,
            r#"],"events":[{"name":"exception","attributes":[{"key":"a","#,
            r#""value":{"stringValue":"b"}}]}],"status":{"code":2}}]}]}]}"#,
        ];
        assert_eq!(trace.to_json(), expected.concat());
        // It is what it was made of, in JSON and in protobuf.
        let again = crate::otlp::json::traces_to_protobuf(trace.to_json().as_bytes()).unwrap();
        assert_eq!(Trace::read(&again).to_json(), trace.to_json());
        assert_eq!(Trace::read(&trace.to_protobuf()).to_json(), trace.to_json());
        assert_eq!(trace.spans[0].service(), "shop");
    }

    #[test]
    fn attributes_are_filtered_and_cut() {
        let rest: Vec<u8> =
            ["a", "b", "c"].iter().flat_map(|name| attribute(9, name, name)).collect();
        let filter = |name: &str, value: &dyn Fn() -> String| match name {
            "a" => AttributeAction::Remove,
            "b" => AttributeAction::Replace(format!("hash of {}", value())),
            _ => AttributeAction::Keep,
        };
        let (stored, _) = encoded(&[span(1, 0, 5..9, &rest)], &filter);
        let of = |stored: &[u8]| Trace::read(stored).spans[0].attributes().collect::<Vec<_>>();
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(of(&stored), [text("b", "hash of b"), text("c", "c")]);
        let rest = attribute(9, "long", &"é".repeat(50_000));
        let (stored, truncated) = encoded(&[span(1, 0, 5..9, &rest)], &keep);
        assert_eq!((truncated, of(&stored)[0].1.len()), (1, 2048));
        let rest: Vec<u8> = (0..1000).flat_map(|n| attribute(9, &n.to_string(), "")).collect();
        let (stored, truncated) = encoded(&[span(1, 0, 5..9, &rest)], &keep);
        assert_eq!((truncated, of(&stored).len()), (1, 128));
    }

    /// Overlapping children count once, and what is beyond the parent does not count.
    #[test]
    fn self_time_is_what_no_child_covers() {
        let check = |spans: &[Vec<u8>], expected: &[u64]| {
            let (stored, _) = encoded(spans, &keep);
            let trace = Trace::read(&stored);
            let mut found: Vec<([u8; 8], u64)> =
                trace.spans.iter().map(|span| span.span_id).zip(trace.self_times()).collect();
            found.sort_unstable();
            assert_eq!(found.into_iter().map(|(_, own)| own).collect::<Vec<_>>(), expected);
        };
        let child = |id: u8, times| span(id, 1, times, &[]);
        let root = span(1, 0, 100..200, &[]);
        check(std::slice::from_ref(&root), &[100]);
        let all = [root.clone(), child(2, 110..150), child(3, 120..130), child(4, 140..160)];
        check(&all, &[50, 40, 10, 20]);
        check(&[root.clone(), child(2, 50..120), child(3, 190..300)], &[70, 70, 110]);
        check(&[root.clone(), child(2, 300..400), child(3, 10..20)], &[100, 100, 10]);
        // Cycles, and a parent that is elsewhere.
        check(&[span(1, 1, 0..9, &[]), span(2, 7, 0..5, &[])], &[9, 5]);
        check(&[span(1, 2, 0..9, &[]), span(2, 1, 2..5, &[])], &[6, 0]);
    }

    #[test]
    fn unusual_trees_are_described() {
        let ids = |ids: &[u8]| ids.iter().map(|id| [*id; 8]).collect::<Vec<_>>();
        let all = [
            span(1, 0, 100..200, &[]),
            span(2, 1, 90..150, &[]),
            span(3, 1, 110..230, &[]),
            span(3, 1, 110..230, &[]),
            span(4, 99, 100..110, &[]),
            span(5, 6, 100..110, &[]),
            span(6, 7, 100..110, &[]),
            span(7, 5, 100..110, &[]),
            span(8, 7, 100..110, &[]),
            span(9, 9, 100..110, &[]),
            // A consumer may end after its parent.
            span(10, 1, 110..500, &[6 << 3, 5]),
        ];
        let (stored, _) = encoded(&all, &keep);
        let trace = Trace::read(&stored);
        assert_eq!((trace.spans.len(), trace.root().unwrap().span_id), (10, [1; 8]));
        let found = trace.problems();
        assert_eq!(found.missing_parents, [([4; 8], [99; 8])]);
        assert_eq!(found.clock_skew, [([2; 8], [1; 8], 10, 0), ([3; 8], [1; 8], 0, 30)]);
        let mut cycles = found.cycles;
        cycles.sort_unstable();
        assert_eq!(cycles, ids(&[5, 6, 7, 9]));
        assert_eq!(Trace::read(&[]).problems(), TraceProblems::default());
        assert!(Trace::read(b"\x0a\x05abc").root().is_none());
        assert_eq!(parse_trace_id("1A").map(u128::from_be_bytes), Some(26));
        for invalid in ["", "0", "xy", &"1".repeat(33)] {
            assert_eq!(parse_trace_id(invalid), None, "{invalid}");
        }
    }
}
