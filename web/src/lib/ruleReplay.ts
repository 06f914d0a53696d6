/** Rules of a threshold, and what they would have done over stored data. */

import { sendRequest } from "./api";
import type { AlertPeriod } from "./alertHistory";
import { quoted } from "./selector";

/** What a rule watches. */
export const CONDITIONS = {
  p99: "p99 above the threshold",
  p90: "p90 above the threshold",
  share: "share of requests above the threshold",
  count: "requests above the threshold",
} as const;
export type RuleCondition = keyof typeof CONDITIONS;

export interface RuleDraft {
  name: string;
  condition: RuleCondition;
  selector: string;
  /** Number or duration in PromQL. */
  threshold: string;
  /** Percent or number of requests; not of quantiles. */
  limit: number;
  window: string;
  hold: string;
}

/** A threshold in PromQL: a duration, if the unit is one of time, so that it can be read. */
export function promqlThreshold(value: number, unit: string): string {
  const factor = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9 }[unit];
  const ms = factor === undefined ? NaN : (value * factor) / 1e6;
  return Number.isInteger(ms) && ms > 0 ? `${ms}ms` : String(value);
}

/** Whether PromQL has the selector: it has no `and()`, `or()` and `not()`. */
export function isPromqlSelector(selector: string): boolean {
  return !/^\s*(and|or|not)\(/.test(selector);
}

/** `checkout_latency` becomes `CheckoutLatencyHigh`. */
export function ruleName(selector: string): string {
  const name = /^\s*([\w:.]+)/.exec(selector)?.[1] ?? "threshold";
  const words = name.split(/[^a-zA-Z0-9]+/).filter((word) => word !== "");
  return `${words.map((word) => word[0]!.toUpperCase() + word.slice(1)).join("")}High`;
}

export function ruleExpression(draft: RuleDraft): string {
  const { condition, selector, threshold, limit, window } = draft;
  const increase = `sum(exact_increase(${selector}[${window}]))`;
  switch (condition) {
    case "p99":
      return `histogram_quantile(0.99, ${increase}) > ${threshold}`;
    case "p90":
      return `histogram_quantile(0.9, ${increase}) > ${threshold}`;
    case "share":
      return `histogram_fraction(${threshold}, +Inf, ${increase}) > ${limit / 100}`;
    case "count":
      return `histogram_count_above(${threshold}, ${increase}) > ${limit}`;
  }
}

/** Formats of rule files. */
export const FORMATS = { toml: "topdeck (TOML)", yaml: "Prometheus (YAML)" } as const;
export type RuleFormat = keyof typeof FORMATS;

/** A file of own rules with the rule. Its replay is evaluated each minute. */
export function ruleToml(draft: RuleDraft): string {
  const { condition, limit } = draft;
  const duration = (text: string) => text.replace(/^(\d+)m$/, "$1min");
  const threshold = Number.isFinite(Number(draft.threshold))
    ? draft.threshold
    : tomlText(draft.threshold);
  const criterion = {
    p99: `quantile = 0.99\nabove = ${threshold}`,
    p90: `quantile = 0.9\nabove = ${threshold}`,
    share: `share_above = ${threshold}\nabove = "${limit}%"`,
    count: `count_above = ${threshold}\nabove = ${limit}`,
  }[condition];
  return `interval = "1min"

[[rule]]
name = ${tomlText(draft.name)}
select = ${tomlText(draft.selector)}
by = []
window = "${duration(draft.window)}"
for = "${duration(draft.hold)}"

[[rule.criteria]]
severity = 1
${criterion}
`;
}

/** A text in single quotes, where all characters stand for themselves, if it has none itself. */
function tomlText(text: string): string {
  return /['\u0000-\u001f\u007f]/.test(text) ? JSON.stringify(text) : `'${text}'`;
}

/** A rule file of Prometheus with the rule. */
export function ruleYaml(draft: RuleDraft): string {
  return `groups:
- name: ${draft.name}
  interval: 1m
  rules:
  - alert: ${draft.name}
    expr: ${yamlText(ruleExpression(draft))}
    for: ${draft.hold}
    labels:
      severity: page
    annotations:
      summary: ${yamlText(`${draft.selector}: ${CONDITIONS[draft.condition]} ${draft.threshold}`)}
`;
}

/** A text in single quotes: only these have to be doubled. */
function yamlText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

interface TransitionJson {
  at_ns: number;
  state: "pending" | "firing" | "inactive";
}

interface ReplayJson {
  from_ns: number;
  to_ns: number;
  rules: {
    summary: string;
    fired: number;
    alerts: {
      labels: Record<string, string>;
      state_at_start: TransitionJson["state"];
      transitions: TransitionJson[];
      omitted_transitions: number;
    }[];
  }[];
}

/** What a rule would have done. Times are in milliseconds. */
export interface Replay {
  range: [number, number];
  summary: string;
  alerts: { name: string; periods: AlertPeriod[]; omitted: number }[];
}

/** The server ends a replay after nine minutes. */
const TIMEOUT_MS = 600_000;

export async function replayRule(
  rule: { text: string; format: RuleFormat },
  from: string,
  signal: AbortSignal,
): Promise<Replay> {
  const path = `/v1/rules/replay?from=${from}&file=rule.${rule.format}`;
  const options = { text: rule.text, signal, timeoutMs: TIMEOUT_MS };
  const { response } = await sendRequest<ReplayJson>("POST", path, options);
  return toReplay(response);
}

export function toReplay({ from_ns, to_ns, rules }: ReplayJson): Replay {
  const range: [number, number] = [from_ns / 1e6, to_ns / 1e6];
  const alerts = rules.flatMap((rule) =>
    rule.alerts.map((alert) => {
      const others = Object.entries(alert.labels).filter(([label]) => label !== "alertname");
      const name = others.map(([label, value]) => `${label}=${quoted(value)}`).join(", ");
      const periods: AlertPeriod[] = [];
      let [state, since] = [alert.state_at_start, range[0]];
      const end = (at: number) => {
        if (state !== "inactive" && at > since) periods.push({ state, start: since, end: at });
      };
      for (const { at_ns, state: next } of alert.transitions) {
        end(at_ns / 1e6);
        [state, since] = [next, at_ns / 1e6];
      }
      // Of an alert with too many changes, the rest is not known.
      if (alert.omitted_transitions === 0) end(range[1]);
      return { name, periods, omitted: alert.omitted_transitions };
    }),
  );
  return { range, summary: rules.map(({ summary }) => summary).join(" "), alerts };
}

/** Progress of the replay that the server runs: `4,000 of 10,080 evaluations`; empty if none. */
export async function fetchProgress(signal: AbortSignal): Promise<string> {
  interface ProgressJson {
    evaluations: number | null;
    total: number | null;
  }
  const { response } = await sendRequest<ProgressJson>("GET", "/v1/rules/replay", { signal });
  const { evaluations, total } = response;
  if (evaluations === null || total === null || total === 0) return "";
  const count = (n: number) => n.toLocaleString("en-GB");
  return `${count(evaluations)} of ${count(total)} evaluations`;
}
