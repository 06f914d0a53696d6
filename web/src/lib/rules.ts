/** Rules of rule files: whether they are evaluated, and what is wrong with them. */

import { getJson } from "./api";
import { conditionOf, CONDITIONS, sortAlerts, type AlertJson } from "./alerts";
import { write } from "./link";
import type * as time from "./time";

/** A threshold as written, and a selector in PromQL. */
export interface RuleThreshold {
  threshold: string;
  selector: string;
}

/** What the query of a rule is. */
type RuleLanguage = "promql" | "caql" | "selector" | "formula";

interface RuleJson {
  type: "alerting" | "recording";
  name: string;
  query: string;
  labels?: Record<string, string>;
  /** Threshold that the query names, and the distribution that it is of. */
  distribution?: RuleThreshold;
  /** Of own rules: what the query is. */
  language?: RuleLanguage;
  /** Of alerting rules: that of the most severe alert. */
  state?: "inactive" | "pending" | "firing";
  health: "ok" | "err" | "unknown";
  lastError?: string;
  /** Seconds. */
  evaluationTime: number;
  lastEvaluation: string;
}

interface GroupJson {
  name: string;
  file: string;
  /** Seconds. */
  interval: number;
  rules: RuleJson[];
}

/** Field `alerts` of `/v1/status`. */
interface RuleStatusJson {
  is_evaluating: boolean;
  missed_iterations: number;
  problems: string[];
  /** Warnings of rules whose selectors had no data in the last day. */
  unmatched?: string[];
}

/** A rule with its place and its last evaluation. */
export interface RuleRow {
  key: string;
  name: string;
  query: string;
  labels: Record<string, string>;
  distribution: RuleThreshold | null;
  language: RuleLanguage;
  isAlerting: boolean;
  state: string;
  health: "ok" | "err" | "unknown";
  error: string;
  file: string;
  /** File, with the line if it is known. */
  place: string;
  group: string;
  /** Milliseconds; null before the first evaluation. */
  evaluatedAt: number | null;
  durationNs: number;
}

/**
 * The rule of an alert: several have one name, such as those of SLOs, so that their labels decide.
 * A label with a template may have any value.
 */
export function ruleOf(
  rules: readonly RuleRow[],
  { name, labels }: { name: string; labels: Readonly<Record<string, string>> },
): RuleRow | undefined {
  const isSame = ([label, value]: [string, string]) =>
    value.includes("{{") || (labels[label] ?? "") === value;
  return rules.find(
    (rule) => rule.isAlerting && rule.name === name && Object.entries(rule.labels).every(isSame),
  );
}

/** A rule or group that is not used, or is used with a warning. */
export interface RuleFileProblem {
  place: string;
  isError: boolean;
  message: string;
}

/** All rules of a server. */
export interface RuleOverview {
  rows: RuleRow[];
  problems: RuleFileProblem[];
  /** Rules that match nothing. */
  unmatched: RuleFileProblem[];
  isEvaluating: boolean;
  missedIterations: number;
}

export async function fetchRules(signal: AbortSignal): Promise<RuleOverview> {
  interface RulesJson {
    data: { groups: GroupJson[] };
  }
  const [rules, status] = await Promise.all([
    getJson<RulesJson>("/api/v1/rules", { exclude_alerts: "true" }, signal),
    getJson<{ alerts?: RuleStatusJson }>("/v1/status", {}, signal),
  ]);
  return toRuleOverview(rules.data.groups, status.alerts);
}

export function toRuleOverview(
  groups: readonly GroupJson[],
  status: RuleStatusJson | undefined,
): RuleOverview {
  const rows = groups.flatMap((group) =>
    group.rules.map((rule, at): RuleRow => {
      const evaluatedAt = Date.parse(rule.lastEvaluation);
      return {
        key: JSON.stringify([group.file, group.name, at]),
        name: rule.name,
        query: rule.query,
        labels: rule.labels ?? {},
        distribution: rule.distribution ?? null,
        language: rule.language ?? "promql",
        isAlerting: rule.type === "alerting",
        state: rule.state ?? "",
        health: rule.health,
        error: rule.lastError ?? "",
        file: group.file,
        place: group.file,
        group: group.name,
        // Before the first evaluation it is the zero time of Go.
        evaluatedAt: evaluatedAt > 0 ? evaluatedAt : null,
        durationNs: rule.evaluationTime * 1e9,
      };
    }),
  );
  return {
    rows: sortRules(rows),
    problems: (status?.problems ?? []).map(parseProblem),
    unmatched: (status?.unmatched ?? []).map(parseProblem),
    isEvaluating: status?.is_evaluating ?? false,
    missedIterations: status?.missed_iterations ?? 0,
  };
}

/** The query of a rule in Explore; null for a formula, which reads the states of other rules. */
export function ruleLink({ query, language }: RuleRow, range: time.TimeRange): string | null {
  if (language === "formula") return null;
  const settings = language === "selector" ? { selector: query } : { language, query };
  return write({ view: "explore", settings: { ...settings, ...range } });
}

/** Failing rules first, then those with alerts; the others in the order of the files. */
function sortRules(rows: readonly RuleRow[]): RuleRow[] {
  const rank = ({ health, state }: RuleRow) => {
    const at = CONDITIONS.findIndex((condition) => condition === state);
    return health === "err" ? -1 : at < 0 ? CONDITIONS.length : at;
  };
  return [...rows].sort((a, b) => rank(a) - rank(b));
}

/** Splits `FILE:LINE:COLUMN: error: MESSAGE`. */
export function parseProblem(text: string): RuleFileProblem {
  const match = /^(.+?:\d+(?::\d+)?): (error|warning): (.*)$/s.exec(text);
  if (!match) return { place: "", isError: true, message: text };
  const [, place = "", severity, message = ""] = match;
  return { place, isError: severity === "error", message };
}

/** Identity of a rule in both responses of the server. */
export function ruleKey(rule: Pick<AlertJson, "file" | "group" | "name" | "query">): string {
  return JSON.stringify([rule.file, rule.group, rule.name, rule.query]);
}

/** Alerting rules whose last evaluation failed. */
export function failingRules(rows: readonly RuleRow[]): ReadonlySet<string> {
  const failing = rows.filter(({ isAlerting, health }) => isAlerting && health === "err");
  return new Set(failing.map(ruleKey));
}

/**
 * Rules with what their active alerts tell: the line, which the server reports with alerts only,
 * and whether all of them are unknown.
 */
export function withAlerts(rows: readonly RuleRow[], alerts: readonly AlertJson[]): RuleRow[] {
  // The last one is the most severe.
  const known = new Map(
    sortAlerts(alerts)
      .reverse()
      .map((alert) => [ruleKey(alert), alert]),
  );
  const described = rows.map((row) => {
    const alert = row.isAlerting ? known.get(ruleKey(row)) : undefined;
    if (!alert) return row;
    return { ...row, place: `${row.file}:${alert.line}`, state: conditionOf(alert) };
  });
  return sortRules(described);
}

/** Whether nothing is known to be wrong: only then is "no alerts" good news. */
export function areRulesSound(overview: RuleOverview): boolean {
  const { rows, problems, unmatched, isEvaluating } = overview;
  const isComplete = isEvaluating && problems.length + unmatched.length === 0;
  return isComplete && rows.every(({ health }) => health === "ok");
}

/** Settings that read rule files, and a rule file. They are those of `docs/alerts.md`. */
export const SETTINGS_EXAMPLE = `[alerts]
rule_files = ["rules/*.yaml"]
evaluation_interval = "30s"`;
export const RULE_FILE_EXAMPLE = `groups:
- name: shop
  interval: 15s
  rules:
  - record: shop:slow_requests:5m
    expr: sum by (zone) (histogram_count_above(0.25, exact_increase(latency_seconds[5m])))
  - alert: CheckoutSlow
    expr: shop:slow_requests:5m > 100
    for: 2m`;
