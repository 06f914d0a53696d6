/** Active alerts: their order, and what the page says of each. Times are in milliseconds. */

import { getJson, type BoundJson, type BracketJson } from "./api";
import { write } from "./link";
import { quoted } from "./selector";
import * as time from "./time";
import { formatInput, formatValue } from "./unit";

/** The criterion of an own rule that holds, with what it measured. */
export interface AlertCriterionJson extends BracketJson {
  text: string;
  threshold: BoundJson;
  unit: string;
  /** Limit of the values of a distribution that the criterion is about, such as `250ms`. */
  limit?: string;
  /** Of a forecast: when the gauge reaches its bound, in words. */
  forecast?: string;
}

export interface AlertJson {
  name: string;
  /** A received alert is of another program: it has no rule and no value. */
  source: "rule" | "received";
  fingerprint: string;
  state: "pending" | "firing";
  labels: Record<string, string>;
  annotations: Record<string, string>;
  /** NaN and infinities are strings. */
  value: number | string | null;
  /** Of own rules, from 1 (worst) to 5. */
  severity?: number | null;
  criterion?: AlertCriterionJson | null;
  since_ns: number;
  fired_ns: number | null;
  /** The state is an earlier one, because data is missing or the query fails. */
  unknown_since_ns: number | null;
  next: { at_ns: number; state: string } | null;
  why: string;
  is_flapping: boolean;
  acknowledgement: { at_ns: number; until_ns: number; by: string; note: string } | null;
  /** Ids of active silences. */
  silenced_by: string[];
  /** Whether one of them recurs. Absent from a server of an earlier version. */
  is_in_maintenance?: boolean;
  group: string;
  file: string;
  line: number;
  query: string;
  /** Where a received alert comes from. */
  generator_url?: string;
}

/** Response of `/v1/alerts`. */
export interface AlertsJson {
  revision: number;
  light: string;
  light_count: number;
  alerts: AlertJson[];
}

/** Longest wait of a long poll. Values are as old as this, because they are no change. */
export const POLL_WAIT_MS = 10_000;

/** Active alerts: as soon as they differ from the earlier response, if there is one. */
export function fetchAlerts(earlier: AlertsJson | null, signal: AbortSignal): Promise<AlertsJson> {
  const wait = earlier ? { wait: POLL_WAIT_MS / 1e3, since: earlier.revision } : {};
  return getJson<AlertsJson>("/v1/alerts", wait, signal);
}

/** What is shown: an alert whose data is missing is unknown, whatever its last state was. */
export type AlertCondition = "firing" | "unknown" | "pending";

/** The most severe first. */
export const CONDITIONS: readonly AlertCondition[] = ["firing", "unknown", "pending"];

export function conditionOf({ state, unknown_since_ns }: AlertJson): AlertCondition {
  return unknown_since_ns === null ? state : "unknown";
}

/** Whether somebody knows of an alert: it is acknowledged or silenced. */
export function isAttended({ acknowledgement, silenced_by }: AlertJson): boolean {
  return acknowledgement !== null || silenced_by.length > 0;
}

/** Values of the label `severity`; others are 2. */
const SEVERITIES: readonly (readonly [RegExp, number])[] = [
  [/^(1|page|critical|emergency|fatal|disaster)$/i, 1],
  [/^(3|warning|warn|ticket|low|minor)$/i, 3],
  [/^(4|info)$/i, 4],
  [/^(5|none|debug)$/i, 5],
];

/** From 1 (worst) to 5. */
export function severityOf({ severity, labels }: AlertJson): number {
  const word = labels["severity"] ?? "";
  return severity ?? SEVERITIES.find(([words]) => words.test(word))?.[1] ?? 2;
}

/**
 * The most severe first: firing, unknown, pending. Within them those that nobody acknowledged or
 * silenced, then by severity, then the latest.
 */
export function sortAlerts(alerts: readonly AlertJson[]): AlertJson[] {
  const ranks = (one: AlertJson) => [
    CONDITIONS.indexOf(conditionOf(one)),
    isAttended(one) ? 1 : 0,
    severityOf(one),
    -one.since_ns,
  ];
  const keyed = alerts.map((alert) => ({ alert, ranks: ranks(alert) }));
  keyed.sort((a, b) => {
    const at = a.ranks.findIndex((rank, at) => rank !== b.ranks[at]);
    return at < 0 ? 0 : a.ranks[at]! - b.ranks[at]!;
  });
  return keyed.map(({ alert }) => alert);
}

/** Identity of an alert, for the list. */
export function alertKey({ file, group, line, labels }: AlertJson): string {
  return JSON.stringify([file, group, line, Object.entries(labels).sort()]);
}

/** Alerts that are one problem: the windows of the burn rate of an SLO. The worst is first. */
export interface AlertGroup {
  key: string;
  alerts: readonly [AlertJson, ...AlertJson[]];
}

/** File of the alerts of SLOs, which are in no rule file. */
const SLO_FILE = "slo";

/** Groups of sorted alerts, in their order. */
export function groupAlerts(alerts: readonly AlertJson[]): AlertGroup[] {
  const groups = new Map<string, [AlertJson, ...AlertJson[]]>();
  for (const alert of alerts) {
    const slo = alert.labels["slo"];
    const isWindow = alert.file === SLO_FILE && slo !== undefined && "window" in alert.labels;
    const key = isWindow ? JSON.stringify([SLO_FILE, alert.name, slo]) : alertKey(alert);
    const group = groups.get(key);
    if (group) group.push(alert);
    else groups.set(key, [alert]);
  }
  return [...groups].map(([key, alerts]) => ({ key, alerts }));
}

/** Labels that all alerts have with the same value. */
export function commonLabels([first, ...others]: AlertGroup["alerts"]): Record<string, string> {
  const isCommon = ([name, value]: [string, string]) =>
    others.every(({ labels }) => labels[name] === value);
  return Object.fromEntries(Object.entries(first.labels).filter(isCommon));
}

export function countConditions(alerts: readonly AlertJson[]): Record<AlertCondition, number> {
  const counts = { firing: 0, unknown: 0, pending: 0 };
  for (const alert of alerts) counts[conditionOf(alert)]++;
  return counts;
}

/** `3 firing (1 acknowledged, 1 silenced), 1 unknown, 0 pending`. */
export function describeCounts(alerts: readonly AlertJson[]): string {
  const describe = (condition: AlertCondition) => {
    const all = alerts.filter((alert) => conditionOf(alert) === condition);
    const silenced = all.filter(({ silenced_by }) => silenced_by.length > 0).length;
    const attended = [
      [all.filter(isAttended).length - silenced, "acknowledged"],
      [silenced, "silenced"],
    ] as const;
    const shown = attended.flatMap(([count, name]) => (count > 0 ? [`${count} ${name}`] : []));
    return `${all.length} ${condition}${shown.length > 0 ? ` (${shown.join(", ")})` : ""}`;
  };
  return CONDITIONS.map(describe).join(", ");
}

/**
 * `2 firing, 1 unknown`: the subject of the tab. Alerts that are pending, acknowledged or silenced
 * are no reason to look.
 */
export function describeTab(alerts: readonly AlertJson[] | null, isConnected: boolean): string {
  if (!alerts) return "";
  if (!isConnected) return "? firing";
  const { firing, unknown } = countConditions(alerts.filter((alert) => !isAttended(alert)));
  const counts = [
    [firing, "firing"],
    [unknown, "unknown"],
  ] as const;
  return counts.flatMap(([count, name]) => (count > 0 ? [`${count} ${name}`] : [])).join(", ");
}

/** Labels beside the name, as in a selector. */
export function otherLabels(labels: Record<string, string>): string[] {
  const others = Object.entries(labels).filter(([name]) => name !== "alertname");
  return others.map(([name, value]) => `${name}=${quoted(value)}`);
}

/** A query that compares an expression with a number. */
export interface LimitQuery {
  expression: string;
  operator: string;
  limit: string;
}

const COMPARISON = /^(.*\S)\s*(>=|<=|==|!=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)$/is;
const SET_OPERATOR = /[<>=!]=|[<>]|\b(?:and|or|unless)\b/i;

/** Splits `expression > limit`; null if the query has another form. */
export function splitLimit(query: string): LimitQuery | null {
  // Comments would hide the comparison.
  const match = query.includes("#") ? null : COMPARISON.exec(query.trim());
  if (!match) return null;
  const [, expression = "", operator = "", limit = ""] = match;
  const outer = outerText(expression);
  // A further comparison or a set operator at the same level: the value is of a part only.
  return outer === null || SET_OPERATOR.test(outer) ? null : { expression, operator, limit };
}

/** The text outside of strings and brackets; null if they do not match. */
function outerText(text: string): string | null {
  let [rest, before] = [text.replace(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`/gs, ""), ""];
  while (rest !== before) {
    before = rest;
    rest = rest.replace(/\([^(){}[\]]*\)|\{[^(){}[\]]*\}|\[[^(){}[\]]*\]/g, " ");
  }
  return /["'`(){}[\]]/.test(rest) ? null : rest;
}

const OPERATORS: Readonly<Record<string, string>> = {
  ">": "above",
  ">=": "at or above",
  "<": "below",
  "<=": "at or below",
  "==": "equal to",
  "!=": "not equal to",
};

/**
 * Of a firing alert that is kept firing or unknown, the value is that of an earlier evaluation.
 * Empty otherwise.
 */
export function describeValueTime(alert: AlertJson): string {
  const isEarlier = conditionOf(alert) === "unknown" || alert.next?.state === "inactive";
  return isEarlier ? "when the condition last held; " : "";
}

/** The value of a rule without criteria, and what it is. */
export function describeValue(alert: AlertJson): { value: string; meaning: string } {
  const { value, query } = alert;
  const text = typeof value === "string" ? value : formatValue(value, "");
  const limit = splitLimit(query);
  const when = describeValueTime(alert);
  if (!limit) return { value: text, meaning: `${when}result of the query` };
  const name = OPERATORS[limit.operator]!;
  return { value: text, meaning: `${when}the alert is for values ${name} ${limit.limit}` };
}

/** How long ago, in whole seconds. */
export function formatAge(at: number, now: number): string {
  const seconds = Math.floor(Math.max(now - at, 0) / 1e3);
  return seconds === 0 ? "now" : `${time.formatDuration(seconds * 1e3)} ago`;
}

/** What comes next, if nothing changes. `isFailing`: the query of the rule fails. */
export function describeNext(alert: AlertJson, now: number, isFailing = false): string {
  const { next } = alert;
  if (isFailing) return "no deadline: the query fails, and the alert keeps its state";
  if (!next) {
    return conditionOf(alert) === "unknown"
      ? "no deadline: the state is held until there is a result"
      : "fires until the condition no longer holds";
  }
  const left = next.at_ns / 1e6 - now;
  const after = `in ${time.formatDuration(roundUp(left))}`;
  if (alert.source === "received") {
    return `ends ${left < 500 ? "now" : after} unless it is received again`;
  }
  const at = left < 500 ? "at the next evaluation" : after;
  return next.state === "inactive"
    ? `ends ${at} if the condition stays away`
    : `fires ${at} if it stays so`;
}

/** A state of an alert, and when it was entered or will be; empty if nobody knows. */
export interface StateStep {
  name: string;
  when: string;
  isCurrent: boolean;
}

/** The states of an alert in their order, from before it began to its end. */
export function stateSteps(alert: AlertJson, now: number, isFailing = false): StateStep[] {
  const { source, state, since_ns, fired_ns, next } = alert;
  const since = (ns: number) => `since ${time.formatDateTime(ns / 1e6)}`;
  const deadline = (to: string) => {
    if (isFailing || next?.state !== to) return "";
    const left = next.at_ns / 1e6 - now;
    return left < 500 ? "at the next evaluation" : `in ${time.formatDuration(roundUp(left))}`;
  };
  const current = conditionOf(alert) === "unknown" ? `${state}, unknown` : state;
  const isPending = state === "pending";
  const fired = isPending ? deadline("firing") : since(fired_ns ?? since_ns);
  // With `for: 0`, and of another program, an alert fires at once.
  const hasWaited = fired_ns !== null && fired_ns > since_ns && source === "rule";
  const pending = {
    name: isPending ? current : "pending",
    when: since(since_ns),
    isCurrent: isPending,
  };
  return [
    { name: "ok", when: "", isCurrent: false },
    ...(isPending || hasWaited ? [pending] : []),
    { name: isPending ? "firing" : current, when: fired, isCurrent: !isPending },
    { name: "ok", when: deadline("inactive"), isCurrent: false },
  ];
}

/** Whole seconds: a countdown has no milliseconds. */
function roundUp(ms: number): number {
  return Math.ceil(ms / 1e3) * 1e3;
}

/** Time around the start of an alert that a link shows. */
const AROUND_MS = 30 * 60e3;

/** The range around the start of an alert; it ends now if the alert has just started. */
export function alertRange({ since_ns }: AlertJson, now: number): time.TimeRange {
  const since = since_ns / 1e6;
  const { from, to } = time.rangeBetween(since - AROUND_MS, since + AROUND_MS);
  return { from, to: since + AROUND_MS > now ? "now" : to };
}

export function queryLink(query: string, range: time.TimeRange): string {
  return write({ view: "explore", settings: { language: "promql", query, ...range } });
}

/** The distributions of an own rule with a selector, and the threshold; null without a selector. */
export function selectorLink(
  { query, criterion }: AlertJson,
  range: time.TimeRange,
): string | null {
  // The text of the criterion tells whether the query is a selector.
  if (!criterion?.text.includes(` of ${query} within `)) return null;
  const { threshold, unit, forecast } = criterion;
  const limit =
    typeof threshold === "number" && unit && forecast === undefined
      ? { threshold: formatInput(threshold, unit) }
      : {};
  return write({ view: "explore", settings: { selector: query, ...limit, ...range } });
}

/** Annotations that are shown: those of Prometheus' conventions first. */
export function shownAnnotations({ annotations }: AlertJson): [string, string][] {
  const first = ["summary", "description"];
  const rank = (name: string) => (first.includes(name) ? first.indexOf(name) : first.length);
  const shown = Object.entries(annotations).filter(([, text]) => text.trim() !== "");
  return shown.sort(([a], [b]) => rank(a) - rank(b) || (a < b ? -1 : 1));
}

/** Whether a text is an address that a link may have: not of a script. */
export function isWebAddress(text: string): boolean {
  return /^https?:\/\/\S+$/i.test(text);
}
