import { readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import type { AlertJson } from "../src/lib/alerts";
import {
  areRulesSound,
  failingRules,
  parseProblem,
  RULE_FILE_EXAMPLE,
  ruleKey,
  ruleLink,
  ruleOf,
  SETTINGS_EXAMPLE,
  toRuleOverview,
  withAlerts,
} from "../src/lib/rules";

const STATUS = { is_evaluating: true, missed_iterations: 0, problems: [] };
const rule = (name: string, changes: object = {}) => ({
  type: "alerting" as const,
  name,
  query: `${name} > 1`,
  state: "inactive" as const,
  health: "ok" as const,
  evaluationTime: 0.0002,
  lastEvaluation: "2026-11-26T16:07:46.321484828Z",
  ...changes,
});
const overview = (rules: ReturnType<typeof rule>[], status = STATUS) =>
  toRuleOverview([{ name: "g", file: "rules/a.yaml", interval: 1, rules }], status);

test("the rule of an alert is told by its labels, not by its name alone", () => {
  const { rows } = overview([
    rule("SloBudgetBurn", { query: "app", labels: { slo: "app", severity: "{{ $x }}" } }),
    rule("SloBudgetBurn", { query: "ratio", labels: { slo: "ratio" } }),
  ]);
  const alert = (slo: string) => ({ name: "SloBudgetBurn", labels: { slo, severity: "page" } });
  expect(ruleOf(rows, alert("ratio"))?.query).toBe("ratio");
  expect(ruleOf(rows, alert("app"))?.query).toBe("app");
  expect(ruleOf(rows, alert("other"))).toBe(undefined);
});

test("rules that fail are first, then those with alerts", () => {
  const { rows } = overview([
    rule("quiet", { lastEvaluation: "0001-01-01T00:00:00Z" }),
    rule("pending", { state: "pending" }),
    rule("firing", { state: "firing" }),
    rule("failing", { health: "err", lastError: "no such function" }),
  ]);
  expect(rows.map(({ name }) => name)).toEqual(["failing", "firing", "pending", "quiet"]);
  expect(rows[0]).toMatchObject({ error: "no such function", durationNs: 200_000 });
  expect(rows[1]!.evaluatedAt).toBe(Date.UTC(2026, 10, 26, 16, 7, 46, 321));
  expect(rows[3]!.evaluatedAt, "before the first evaluation").toBeNull();
});

test("no alerts is good news only if all rules are evaluated without errors", () => {
  expect(areRulesSound(overview([rule("a")]))).toBe(true);
  expect(areRulesSound(overview([rule("a"), rule("b", { health: "err" })]))).toBe(false);
  expect(areRulesSound(overview([rule("a", { health: "unknown" })])), "at the start").toBe(false);
  const problems = ["a.yaml:3:1: error: x"];
  expect(areRulesSound(overview([rule("a")], { ...STATUS, problems } as never))).toBe(false);
  expect(areRulesSound(overview([rule("a")], { ...STATUS, is_evaluating: false }))).toBe(false);
  expect(areRulesSound(toRuleOverview([], undefined))).toBe(false);
});

test("rules that match nothing are shown, and are no good news", () => {
  const unmatched = ['a.yaml:3:1: warning: rule "a" matches nothing: no data for b'];
  const found = overview([rule("a")], { ...STATUS, unmatched } as never);
  expect(found.unmatched).toEqual([
    { place: "a.yaml:3:1", isError: false, message: unmatched[0]!.split("warning: ")[1] },
  ]);
  expect(areRulesSound(found)).toBe(false);
});

test("a rule links to its query in its own language, a formula to nothing", () => {
  const range = { from: "-1h", to: "now" };
  const link = (language?: string) => {
    const { rows } = overview([rule("a", { query: "x", language })]);
    return ruleLink(rows[0]!, range);
  };
  expect(link()).toContain("language=promql");
  expect(link("promql")).toContain("language=promql");
  expect(link("caql")).toContain("language=caql");
  expect(link("selector")).toContain("selector=x");
  expect(link("selector")).not.toContain("language");
  expect(link("formula")).toBeNull();
});

test("an alert is known to be of a rule that fails", () => {
  const { rows } = overview([rule("a"), rule("b", { health: "err" })]);
  const [failing, place] = [failingRules(rows), { file: "rules/a.yaml", group: "g" }];
  expect(failing.has(ruleKey({ ...place, name: "b", query: "b > 1" }))).toBe(true);
  expect(failing.has(ruleKey({ ...place, name: "a", query: "a > 1" }))).toBe(false);
});

test.each([
  [
    "rules/a.yaml:16:11: error: no x: y",
    { place: "rules/a.yaml:16:11", isError: true, message: "no x: y" },
  ],
  ["C:\\a.yaml:2: warning: unused", { place: "C:\\a.yaml:2", isError: false, message: "unused" }],
  ["something else", { place: "", isError: true, message: "something else" }],
])("the problem %s has a place", (text, expected) => expect(parseProblem(text)).toEqual(expected));

test("a rule with alerts has the line that the server reports with them", () => {
  const { rows } = overview([rule("a"), rule("b")]);
  const alert = { file: "rules/a.yaml", group: "g", name: "b", query: "b > 1", line: 9 };
  const known = { ...alert, labels: {}, state: "pending", unknown_since_ns: null };
  const places = withAlerts(rows, [known as unknown as AlertJson]).map(({ place }) => place);
  expect(places).toEqual(["rules/a.yaml:9", "rules/a.yaml"]);
});

test("a rule is unknown, not firing, if all of its alerts are", () => {
  const { rows } = overview([rule("a", { state: "firing" })]);
  const alert = { file: "rules/a.yaml", group: "g", name: "a", query: "a > 1", line: 9 };
  const unknown = { ...alert, labels: {}, state: "firing", since_ns: 1, unknown_since_ns: 1 };
  const firing = { ...unknown, unknown_since_ns: null };
  const stateOf = (...alerts: object[]) => withAlerts(rows, alerts as AlertJson[])[0]!.state;
  expect(stateOf(unknown)).toBe("unknown");
  expect(stateOf(unknown, firing)).toBe("firing");
  expect(stateOf(firing, unknown)).toBe("firing");
});

test("the examples are those of the documentation", () => {
  const text = readFileSync(join(import.meta.dirname, "../../docs/alerts.md"), "utf8");
  // The documentation has comments, and more lines.
  const lines = text.split("\n").map((line) => line.replace(/\s+# .*$/, ""));
  for (const line of [SETTINGS_EXAMPLE, RULE_FILE_EXAMPLE].join("\n").split("\n")) {
    expect(lines).toContain(line);
  }
});
