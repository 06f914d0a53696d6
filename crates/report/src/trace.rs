//! A trace in OTLP's JSON as text: a waterfall of its spans.
//!
//! Times are nanoseconds since 1970. The tree is that of the page (`web/src/lib/trace.ts`): spans
//! that do not fit together are shown with a mark, never dropped; of a cycle one link is cut.

use std::collections::{HashMap, HashSet};

use render::terminal::{Terminal, TextStyle};
use render::text::{count_text, escape_control};
use render::time::{format_ns, precise_time_text};
use serde_json::Value;

/// Marks of problems, in ASCII too, and what they mean.
const MARKS: [(&str, &str, &str); 4] = [
    ("✕", "x", "failed"),
    ("?", "?", "parent not received"),
    ("↔", "~", "outside of the parent's time: the clocks differ, or the parent did not wait"),
    ("↻", "@", "its own ancestor"),
];
const FAILED: usize = 0;
const ORPHAN: usize = 1;
const SKEWED: usize = 2;
const CYCLIC: usize = 3;

/// Deeper spans are indented no further.
const INDENT_MAX: usize = 12;
/// Characters of a duration.
const DURATION_WIDTH: usize = 9;
/// An axis that clocks make longer than this many times the root shows the root.
const STRETCH_MAX: i64 = 3;

struct WaterfallSpan<'a> {
    service: &'a str,
    name: &'a str,
    id: &'a str,
    parent_id: &'a str,
    parent: Option<usize>,
    children: Vec<usize>,
    depth: usize,
    start: i64,
    end: i64,
    marks: [bool; MARKS.len()],
}

/// The waterfall of a response of `/api/v2/traces/ID`, of at most `limit` rows.
pub fn trace_text(id: &str, answer: &Value, limit: usize, terminal: &Terminal) -> String {
    let (mut spans, duplicates) = read_spans(answer);
    link_parents(&mut spans);
    let order = order_spans(&mut spans);
    let (from, to) = time_axis(&spans, &order);
    let services = spans.iter().map(|span| span.service).collect::<HashSet<_>>().len();
    let mut text = terminal.paint(TextStyle::Heading, &escape_control(id));
    text.push_str(&format!(
        "\n  {} of {} in {}, from {}\n",
        count_text(spans.len() as u64, "span"),
        count_text(services as u64, "service"),
        format_ns(to.saturating_sub(from) as f64),
        precise_time_text(from)
    ));
    if let Some(message) = answer["message"].as_str().filter(|_| answer["status"] == "PARTIAL") {
        text.push_str(&format!("  partial: {}\n", escape_control(message)));
    }
    if duplicates > 0 {
        let count = count_text(duplicates, "span");
        text.push_str(&format!("  {count} received more than once, shown once\n"));
    }
    for at in order.iter().take(limit) {
        text.push_str(&span_line(&spans, *at, (from, to), terminal));
    }
    if order.len() > limit {
        text.push_str(&format!("  {limit} of {} spans are shown; see --limit\n", order.len()));
    }
    for (at, (mark, ascii, meaning)) in MARKS.iter().enumerate() {
        let count = spans.iter().filter(|span| span.marks[at]).count();
        if count > 0 {
            let mark = if terminal.ascii { ascii } else { mark };
            let line = format!("  {mark} {}: {meaning}", count_text(count as u64, "span"));
            text.push_str(&terminal.paint(TextStyle::Faint, &line));
            text.push('\n');
        }
    }
    text
}

/// Spans in the order of the response, each once, and the number of duplicates.
fn read_spans(answer: &Value) -> (Vec<WaterfallSpan<'_>>, u64) {
    let (mut spans, mut seen, mut duplicates) = (Vec::new(), HashSet::new(), 0);
    for resource in list(&answer["trace"]["resourceSpans"]) {
        let attributes = list(&resource["resource"]["attributes"]);
        let service = attributes.iter().find(|one| one["key"] == "service.name");
        let service = service.and_then(|one| one["value"]["stringValue"].as_str());
        for json in list(&resource["scopeSpans"]).iter().flat_map(|scope| list(&scope["spans"])) {
            let span = new_span(json, service.unwrap_or("unknown_service"));
            // Client and server may share an id, as Zipkin's do.
            let key = (span.id, json["kind"].to_string(), span.service);
            if span.id.is_empty() || seen.insert(key) {
                spans.push(span);
            } else {
                duplicates += 1;
            }
        }
    }
    (spans, duplicates)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn new_span<'a>(json: &'a Value, service: &'a str) -> WaterfallSpan<'a> {
    let text = |name: &str| json[name].as_str().unwrap_or("");
    let time = |name: &str| match &json[name] {
        Value::String(text) => text.parse().unwrap_or(0_i64).max(0),
        number => number.as_i64().unwrap_or(0).max(0),
    };
    let code = &json["status"]["code"];
    let start = time("startTimeUnixNano");
    let mut marks = [false; MARKS.len()];
    marks[FAILED] = code == 2 || code == "STATUS_CODE_ERROR";
    WaterfallSpan {
        service,
        name: text("name"),
        id: text("spanId"),
        parent_id: text("parentSpanId").trim_start_matches('0'),
        parent: None,
        children: Vec::new(),
        depth: 0,
        start,
        end: time("endTimeUnixNano").max(start),
        marks,
    }
}

/// Sets parents and marks; cuts a link of each cycle.
fn link_parents(spans: &mut [WaterfallSpan<'_>]) {
    let mut by_id = HashMap::new();
    for (at, span) in spans.iter().enumerate() {
        by_id.entry(span.id.trim_start_matches('0')).or_insert(at);
    }
    let parents: Vec<Option<usize>> =
        spans.iter().map(|span| by_id.get(span.parent_id).copied()).collect();
    for (span, parent) in spans.iter_mut().zip(parents) {
        span.parent = parent.filter(|_| !span.parent_id.is_empty());
        span.marks[ORPHAN] = span.parent.is_none() && !span.parent_id.is_empty();
    }
    // Walks towards the root: 0 is unseen, any other number is the walk that reached the span.
    let mut walk_of = vec![0; spans.len()];
    for start in 0..spans.len() {
        let mut at = start;
        while walk_of[at] == 0 {
            walk_of[at] = start + 1;
            let Some(parent) = spans[at].parent else { break };
            if walk_of[parent] == start + 1 {
                (spans[parent].parent, spans[parent].marks[CYCLIC]) = (None, true);
                break;
            }
            at = parent;
        }
    }
    for at in 0..spans.len() {
        if let Some(parent) = spans[at].parent {
            let outside =
                spans[at].start < spans[parent].start || spans[at].end > spans[parent].end;
            spans[at].marks[SKEWED] = outside;
            spans[parent].children.push(at);
        }
    }
}

/// Each span before its children, the earliest first; without recursion, for a chain may be long.
fn order_spans(spans: &mut [WaterfallSpan<'_>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(spans.len());
    let roots = (0..spans.len()).filter(|at| spans[*at].parent.is_none());
    let mut stack: Vec<(usize, usize)> = roots.map(|at| (0, at)).collect();
    let latest_first = |spans: &[WaterfallSpan<'_>], list: &mut [(usize, usize)]| {
        list.sort_unstable_by_key(|(_, at)| (-spans[*at].start, spans[*at].end, *at));
    };
    latest_first(spans, &mut stack);
    while let Some((depth, at)) = stack.pop() {
        order.push(at);
        spans[at].depth = depth;
        let first = stack.len();
        stack.extend(spans[at].children.iter().map(|child| (depth + 1, *child)));
        latest_first(spans, &mut stack[first..]);
        spans[at].children = stack[first..].iter().rev().map(|(_, child)| *child).collect();
    }
    order
}

/// First and last time, of the spans whose clocks agree if the others are far away.
fn time_axis(spans: &[WaterfallSpan<'_>], order: &[usize]) -> (i64, i64) {
    let mut shifted = vec![false; spans.len()];
    let (mut all, mut tight) = ((i64::MAX, i64::MIN), (i64::MAX, i64::MIN));
    for at in order {
        let span = &spans[*at];
        shifted[*at] = span.parent.is_some_and(|parent| {
            shifted[parent] || span.start < spans[parent].start || span.start > spans[parent].end
        });
        let extend = |ends: &mut (i64, i64)| {
            *ends = (ends.0.min(span.start), ends.1.max(span.end));
        };
        extend(&mut all);
        if !shifted[*at] {
            extend(&mut tight);
        }
    }
    let length = |ends: (i64, i64)| ends.1.saturating_sub(ends.0);
    let (from, to) = match length(all) > length(tight).saturating_mul(STRETCH_MAX) {
        true => tight,
        false => all,
    };
    if order.is_empty() { (0, 1) } else { (from, to.max(from.saturating_add(1))) }
}

/// Times of a span in which none of its children ran; children are in order.
fn self_times(spans: &[WaterfallSpan<'_>], at: usize) -> Vec<(i64, i64)> {
    let span = &spans[at];
    let (mut times, mut done) = (Vec::new(), span.start);
    let ends = span.children.iter().map(|child| (spans[*child].start, spans[*child].end));
    for (start, end) in ends.chain([(span.end, span.end)]) {
        if start.min(span.end) > done {
            times.push((done, start.min(span.end)));
        }
        done = done.max(end.min(span.end));
    }
    times
}

/// Name, duration, self time, and the bar: solid where the span itself worked.
fn span_line(
    spans: &[WaterfallSpan<'_>],
    at: usize,
    (from, to): (i64, i64),
    terminal: &Terminal,
) -> String {
    let span = &spans[at];
    let own = self_times(spans, at);
    let name_width = (terminal.raw_width * 2 / 5).clamp(18, 60);
    let marks = (0..MARKS.len()).filter(|mark| span.marks[*mark]);
    let marks: String =
        marks.map(|mark| if terminal.ascii { MARKS[mark].1 } else { MARKS[mark].0 }).collect();
    let indent = " ".repeat(span.depth.min(INDENT_MAX));
    let separator = if marks.is_empty() { "" } else { " " };
    let name = escape_control(&format!("{} ({})", span.name, span.service));
    let mut name = format!("{indent}{marks}{separator}{name}");
    if name.chars().count() > name_width {
        name = name.chars().take(name_width - 1).chain(['~']).collect();
    }
    let name = format!("{name:<name_width$}");
    let name = if span.marks[FAILED] { terminal.paint(TextStyle::Max, &name) } else { name };
    let self_time: i64 = own.iter().map(|(start, end)| end - start).sum();
    let fixed = 2 + name_width + 2 * (2 + DURATION_WIDTH) + 2;
    let width = terminal.raw_width.saturating_sub(fixed).max(8);
    let column = |time: i64| {
        let share = time.saturating_sub(from) as f64 / to.saturating_sub(from) as f64;
        ((share * width as f64) as usize).min(width)
    };
    let (left, right) = (column(span.start).min(width - 1), column(span.end));
    let right = right.clamp(left + 1, width);
    // A column is solid if the span itself worked at its centre.
    let is_own = |column: usize| {
        let centre = from as f64 + (column as f64 + 0.5) / width as f64 * (to - from) as f64;
        let centre = centre.clamp(span.start as f64, span.end as f64);
        let is_narrow = right - left == 1;
        is_narrow || own.iter().any(|(a, b)| *a as f64 <= centre && centre <= *b as f64)
    };
    let (solid, pale) = if terminal.ascii { ("#", "-") } else { ("█", "░") };
    let mut bar = " ".repeat(left);
    let mut columns = (left..right).map(is_own).peekable();
    while let Some(own) = columns.next() {
        let mut length = 1;
        while columns.next_if_eq(&own).is_some() {
            length += 1;
        }
        let (part, style) =
            if own { (solid, TextStyle::Bar) } else { (pale, TextStyle::Uncertain) };
        bar.push_str(&terminal.paint(style, &part.repeat(length)));
    }
    let [duration, self_time] = [span.end - span.start, self_time].map(|ns| format_ns(ns as f64));
    format!("  {name}  {duration:>DURATION_WIDTH$}  {self_time:>DURATION_WIDTH$}  {bar}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn terminal() -> Terminal {
        Terminal { raw_width: 84, ascii: true, ..Terminal::new(true) }
    }

    #[test]
    fn a_trace_is_a_waterfall_with_marks() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/traces/checkout.json");
        let answer = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let text = trace_text("0af7", &answer, 500, &terminal());
        expect_test::expect![[r#"
            0af7
              11 spans of 4 services in 140.0 ms, from 2026-11-09 12:00:00Z
              partial: 1 span arrived after the trace was written.
              1 span received more than once, shown once
              GET /checkout (frontend)            120.0 ms   10.00 ms  #--------------------
               POST /orders (frontend)            110.0 ms   6.000 ms  #-------------------
                x POST /orders (shop)             104.0 ms   6.000 ms   #---#--------------
                 SELECT orders (shop)             20.00 ms   20.00 ms   ####
                 x charge (shop)                  78.00 ms   2.000 ms       --------------
                  ~ charge (payment)              78.00 ms   5.000 ms       #-------------
                   fraud check (payment)          60.00 ms   60.00 ms        ##########
                   ~ send audit (payment)         40.00 ms   40.00 ms                  #######
              ? consume audit (audit)             15.00 ms   15.00 ms                        ###
              @ loop a (audit)                    2.000 ms   1.000 ms                        #
               loop b (audit)                     1.000 ms   1.000 ms                        #
              x 2 spans: failed
              ? 1 span: parent not received
              ~ 2 spans: outside of the parent's time: the clocks differ, or the parent did not wait
              @ 1 span: its own ancestor
        "#]]
        .assert_eq(&text);
        let text = trace_text("0af7", &answer, 2, &terminal());
        assert!(text.contains("2 of 11 spans are shown; see --limit"), "{text}");
    }

    fn waterfall(spans: &[(&str, &str, i64, i64)]) -> String {
        let spans = spans.iter().map(|(id, parent, start, end)| {
            json!({
                "spanId": id, "parentSpanId": parent, "name": id,
                "startTimeUnixNano": start.to_string(), "endTimeUnixNano": end.to_string(),
            })
        });
        let spans: Vec<Value> = spans.collect();
        let answer = json!({"trace": {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}});
        trace_text("t", &answer, 60_000, &terminal())
    }

    #[test]
    fn spans_that_do_not_fit_together_are_all_shown() {
        let text = waterfall(&[("a", "a", 0, 10)]);
        assert!(text.contains("@ a (unknown_service)"), "{text}");
        // A tail that leads into a cycle.
        let text = waterfall(&[("c", "a", 0, 1), ("a", "b", 0, 1), ("b", "a", 0, 1)]);
        assert_eq!((text.matches("(unknown_service)").count(), text.matches("@ ").count()), (3, 2));
        // A clock that is hours off.
        let far = 3_600_000_000_000;
        let text = waterfall(&[("a", "", 0, 100), ("b", "a", far, far + 1)]);
        assert!(text.contains("in 100 ns") && text.contains(" ~ b"), "{text}");
        assert!(waterfall(&[]).contains("0 spans"));
        assert!(trace_text("t", &Value::Null, 1, &terminal()).contains("0 spans"));
    }

    #[test]
    fn a_chain_of_thousands_is_bounded() {
        let ids: Vec<String> = (0..20_000).map(|at| format!("{:x}", at + 1)).collect();
        let parents = std::iter::once("").chain(ids.iter().map(String::as_str));
        let spans: Vec<_> =
            ids.iter().zip(parents).map(|(id, parent)| (&id[..], parent, 0, 10)).collect();
        let text = waterfall(&spans);
        assert_eq!(text.lines().count(), 20_002);
        assert!(text.lines().all(|line| line.chars().count() <= 84), "too wide");
    }
}
