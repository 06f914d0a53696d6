/** Traces as trees of spans: self times, the critical path, and what is wrong with them. */

import { getJson } from "./api";
import { formatValue } from "./unit";

interface KeyValueJson {
  key: string;
  value?: unknown;
}

interface SpanEventJson {
  timeUnixNano?: string;
  name?: string;
  attributes?: KeyValueJson[];
}

/** A span of OTLP; each field may be absent. */
interface SpanJson {
  spanId?: string;
  parentSpanId?: string;
  name?: string;
  kind?: number | string;
  startTimeUnixNano?: string;
  endTimeUnixNano?: string;
  attributes?: KeyValueJson[];
  events?: SpanEventJson[];
  links?: { traceId?: string; attributes?: KeyValueJson[] }[];
  status?: { code?: number | string; message?: string };
}

interface ResourceSpansJson {
  resource?: { attributes?: KeyValueJson[] };
  scopeSpans?: { spans?: SpanJson[] }[];
}

/** Response of `/api/v2/traces/{id}`. */
export interface TraceJson {
  trace: { resourceSpans?: ResourceSpansJson[] };
  status?: string;
  message?: string;
}

/** What is wrong with a span; `PROBLEMS` has the texts. */
type SpanProblem = "error" | "orphan" | "skew" | "cycle";

/** Shapes and texts of problems, in which no colour is needed. */
export const PROBLEMS: Readonly<Record<SpanProblem, readonly [string, string]>> = {
  error: ["✕", "failed"],
  orphan: ["?", "parent not received"],
  skew: ["↔", "outside of the parent's time"],
  cycle: ["↻", "its own ancestor"],
};

/** Names and values of attributes. */
export type AttributeList = readonly (readonly [string, string])[];

/** A span; times are nanoseconds since the trace began. */
export interface TraceSpan {
  id: string;
  service: string;
  name: string;
  kind: string;
  start: number;
  end: number;
  parent: TraceSpan | null;
  /** From the earliest to the latest. */
  children: TraceSpan[];
  depth: number;
  /** Number of spans of the subtree. */
  size: number;
  /** Times of the span without those of its children. */
  self: (readonly [number, number])[];
  selfTime: number;
  /** Whether the trace would have been shorter without it. */
  isCritical: boolean;
  problems: SpanProblem[];
  /** Sentences about the problems. */
  notes: string[];
  /** Attributes, events and links as they were received. */
  json: SpanJson;
  resource: readonly KeyValueJson[];
}

/** A trace. */
export interface Trace {
  /** In the order of rows: each span is followed by its children. */
  spans: TraceSpan[];
  /** Nanoseconds since 1970 of the first start. */
  base: bigint;
  /** Ends of the time axis. */
  from: number;
  to: number;
  /** Self time by service, in the order of rows. */
  services: Map<string, number>;
  /** Spans that were received twice, and those beyond the limit. */
  duplicates: number;
  omitted: number;
}

/** Spans that are shown: rows of more are no overview either. */
const MAX_SPANS = 20_000;
/** An axis that clocks make longer than this many times the root shows the root. */
const MAX_STRETCH = 3;
const KINDS = ["", "internal", "server", "client", "producer", "consumer"];

export async function fetchTrace(id: string, signal: AbortSignal): Promise<TraceJson> {
  return getJson<TraceJson>(`/api/v2/traces/${encodeURIComponent(id)}`, {}, signal);
}

/** The value of an attribute as a text: `AnyValue` of OTLP has one field. */
function valueText(value: unknown): string {
  if (value === null || typeof value !== "object") return String(value ?? "");
  const [[name, inner] = ["", ""]] = Object.entries(value);
  const { values = [] } = (inner ?? {}) as { values?: unknown[] };
  if (name === "arrayValue") return `[${values.map(valueText).join(", ")}]`;
  if (name === "kvlistValue") {
    const pairs = attributesOf(values as KeyValueJson[]).map((pair) => pair.join("="));
    return `{${pairs.join(", ")}}`;
  }
  return valueText(inner);
}

export function attributesOf(list: readonly KeyValueJson[] = []): AttributeList {
  return list.map(({ key, value }) => [key, valueText(value)] as const);
}

/** The tree of a trace: what does not fit together is a problem of its span. */
export function readTrace({ trace }: TraceJson): Trace {
  const [spans, byId, seen] = [[] as TraceSpan[], new Map<string, TraceSpan>(), new Set<string>()];
  let [duplicates, omitted] = [0, 0];
  for (const { resource, scopeSpans = [] } of trace.resourceSpans ?? []) {
    const attributes = resource?.attributes ?? [];
    const named = attributes.find(({ key }) => key === "service.name");
    const service = (named && valueText(named.value)) || "unknown_service";
    for (const json of scopeSpans.flatMap(({ spans = [] }) => spans)) {
      const span = newSpan(json, service, attributes);
      // Client and server may share an id, as Zipkin's do.
      const key = `${span.id} ${span.kind} ${service}`;
      if (span.id && seen.has(key)) duplicates++;
      else if (spans.length === MAX_SPANS) omitted++;
      else {
        seen.add(key);
        spans.push(span);
        if (span.id && !byId.has(span.id)) byId.set(span.id, span);
      }
    }
  }
  const starts = spans.map(({ json }) => BigInt(json.startTimeUnixNano ?? 0));
  const base = starts.reduce((a, b) => (b < a ? b : a), starts[0] ?? 0n);
  spans.forEach((span, at) => {
    const { endTimeUnixNano: end = 0, status } = span.json;
    span.start = Number(starts[at]! - base);
    span.end = Math.max(Number(BigInt(end) - base), span.start);
    if (/ERROR$|^2$/.test(String(status?.code))) {
      addProblem(span, "error", `Failed${status?.message ? `: ${status.message}` : ""}.`);
    }
  });
  linkParents(spans, byId);
  const rows = orderRows(spans);
  rows.forEach(measureSelf);
  const roots = rows.filter(({ parent }) => !parent);
  markCritical(roots.reduce((a, b) => (b.end - b.start > a.end - a.start ? b : a), roots[0]!));
  const services = new Map<string, number>();
  for (const { service, selfTime } of rows) {
    services.set(service, (services.get(service) ?? 0) + selfTime);
  }
  return { spans: rows, base, ...axisOf(rows), services, duplicates, omitted };
}

function newSpan(json: SpanJson, service: string, resource: readonly KeyValueJson[]): TraceSpan {
  const { spanId: id = "", name = "", kind = 0 } = json;
  const kindName = KINDS[Number(kind)] ?? String(kind).replace("SPAN_KIND_", "").toLowerCase();
  return {
    ...{ id, service, name, kind: kindName, start: 0, end: 0, parent: null, children: [] },
    ...{ depth: 0, size: 1, self: [], selfTime: 0, isCritical: false, problems: [], notes: [] },
    ...{ json, resource },
  };
}

function addProblem(span: TraceSpan, problem: SpanProblem, note: string): void {
  if (!span.problems.includes(problem)) span.problems.push(problem);
  span.notes.push(note);
}

function linkParents(spans: readonly TraceSpan[], byId: ReadonlyMap<string, TraceSpan>): void {
  for (const span of spans) {
    const id = span.json.parentSpanId ?? "";
    if (/^0*$/.test(id)) continue;
    const parent = byId.get(id);
    if (!parent) {
      addProblem(span, "orphan", `Its parent ${id} was not received.`);
      continue;
    }
    span.parent = parent;
    parent.children.push(span);
  }
  // Of a cycle no span is reached from a root: one of its links is cut.
  const reached = new Set<TraceSpan>();
  for (const span of spans) {
    const walk = new Set<TraceSpan>();
    let at = span;
    while (at.parent && !reached.has(at) && !walk.has(at)) {
      walk.add(at);
      at = at.parent;
    }
    if (walk.has(at)) {
      addProblem(at, "cycle", "It is its own ancestor: it is shown without its parent.");
      at.parent!.children = at.parent!.children.filter((one) => one !== at);
      at.parent = null;
    }
    for (const one of [...walk, at]) reached.add(one);
  }
  for (const span of spans) {
    const { parent } = span;
    if (!parent) continue;
    const [early, late] = [parent.start - span.start, span.end - parent.end];
    const text = (ns: number) => formatValue(ns, "ns");
    if (early > 0) {
      addProblem(span, "skew", `It begins ${text(early)} before its parent: the clocks differ.`);
    }
    if (late > 0) {
      const cause = "the clocks differ, or the parent did not wait";
      addProblem(span, "skew", `It ends ${text(late)} after its parent: ${cause}.`);
    }
  }
}

/** Each span before its children, the earliest first; sets depth and size. */
function orderRows(spans: readonly TraceSpan[]): TraceSpan[] {
  const early = (a: TraceSpan, b: TraceSpan) => a.start - b.start || b.end - a.end;
  // Without recursion: a trace may be a chain of thousands.
  const stack = spans.filter(({ parent }) => !parent).sort((a, b) => early(b, a));
  const rows: TraceSpan[] = [];
  for (let span = stack.pop(); span; span = stack.pop()) {
    span.depth = span.parent ? span.parent.depth + 1 : 0;
    rows.push(span);
    span.children.sort(early);
    for (let at = span.children.length - 1; at >= 0; at--) stack.push(span.children[at]!);
  }
  for (let at = rows.length - 1; at >= 0; at--) {
    const { parent, size } = rows[at]!;
    if (parent) parent.size += size;
  }
  return rows;
}

/** The times of a span in which none of its children ran. */
function measureSelf(span: TraceSpan): void {
  let at = span.start;
  const add = (until: number) => {
    if (until > at) {
      span.self.push([at, until]);
      span.selfTime += until - at;
    }
  };
  for (const child of span.children) {
    add(Math.min(child.start, span.end));
    at = Math.max(at, Math.min(child.end, span.end));
  }
  add(span.end);
}

/**
 * Marks the critical path: from the end of a span backwards, the child that ended last, then the
 * one that ended last before that began. Children that outlast their parent were not waited for.
 */
function markCritical(root: TraceSpan | undefined): void {
  const stack = root ? [root] : [];
  for (let span = stack.pop(); span; span = stack.pop()) {
    span.isCritical = true;
    let at = span.end;
    for (const child of [...span.children].sort((a, b) => b.end - a.end)) {
      if (child.end > at) continue;
      stack.push(child);
      at = child.start;
    }
  }
}

/** Ends of all spans, or of those whose clocks agree if the others are far away. */
function axisOf(rows: readonly TraceSpan[]): { from: number; to: number } {
  const [all, tight] = [
    [Infinity, -Infinity],
    [Infinity, -Infinity],
  ] as [number[], number[]];
  const shifted = new Set<TraceSpan>();
  for (const span of rows) {
    const { parent, start, end } = span;
    const isShifted = parent && (shifted.has(parent) || start < parent.start || start > parent.end);
    if (isShifted) shifted.add(span);
    for (const ends of isShifted ? [all] : [all, tight]) {
      [ends[0], ends[1]] = [Math.min(ends[0]!, start), Math.max(ends[1]!, end)];
    }
  }
  const length = ([from, to]: number[]) => to! - from!;
  const [from, to] = length(all) > MAX_STRETCH * length(tight) ? tight : all;
  return rows.length === 0 ? { from: 0, to: 1 } : { from: from!, to: Math.max(to!, from! + 1) };
}

/** Rows of the spans that are no descendants of collapsed ones. */
export function visibleRows(trace: Trace, collapsed: ReadonlySet<TraceSpan>): TraceSpan[] {
  if (collapsed.size === 0) return trace.spans;
  const rows: TraceSpan[] = [];
  for (let at = 0; at < trace.spans.length;) {
    const span = trace.spans[at]!;
    rows.push(span);
    at += collapsed.has(span) ? span.size : 1;
  }
  return rows;
}

/** The external user interface's address of a trace, of the setting `trace_url`. */
export function externalUrl(template: string, trace: string, span = ""): string {
  return template.replaceAll("{trace_id}", trace).replaceAll("{span_id}", span);
}
