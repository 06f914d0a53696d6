import { expect, test } from "vitest";

import { refineRows, toRows, type AlertChangeJson } from "../src/lib/alertHistory";
import { describeFiring } from "../src/lib/alertPeriod";
import type { AlertJson } from "../src/lib/alerts";
import { exact } from "../src/lib/distribution";
import { countFiring, isAlertOf } from "../src/lib/firingAlerts.svelte";
import {
  isPromqlSelector,
  promqlThreshold,
  ruleExpression,
  ruleName,
  ruleToml,
  ruleYaml,
  toReplay,
  type RuleDraft,
} from "../src/lib/ruleReplay";

const series = (labels: Record<string, string>, times: number[]) => ({
  labels: { __name__: "ALERTS", ...labels },
  points: times.map((time) => ({ time, value: exact(1) })),
});

test("evaluations become periods of one state", () => {
  const slow = { alertname: "Slow", host: "a" };
  const rows = toRows(
    [
      series({ ...slow, alertstate: "pending" }, [10, 20, 70]),
      series({ ...slow, alertstate: "firing" }, [30, 40, 50]),
      series({ alertname: "Down", alertstate: "firing" }, [90]),
      series({ alertname: "Never", alertstate: "firing" }, []),
    ],
    10,
    100,
  );
  expect(rows.map(({ name }) => name)).toEqual(["Down", "Slow"]);
  expect(rows[1]).toMatchObject({
    labels: { host: "a" },
    fired: 1,
    firingMs: 30,
    periods: [
      { state: "pending", start: 0, end: 20 },
      { state: "firing", start: 20, end: 50 },
      { state: "pending", start: 60, end: 70 },
    ],
  });
});

test("a time of firing does not end in the future, after the last column", () => {
  const [row] = toRows([series({ alertname: "Slow", alertstate: "firing" }, [60, 120])], 60, 101);
  expect(row).toMatchObject({ firingMs: 101, periods: [{ start: 0, end: 101 }] });
  const [late] = toRows([series({ alertname: "Slow", alertstate: "firing" }, [180])], 60, 101);
  expect(late).toMatchObject({ firingMs: 0, periods: [{ start: 120, end: 120 }] });
});

test("rows of the overview count firing alerts as its first line does", () => {
  const alert = (changes: object) =>
    ({ labels: {}, acknowledgement: null, silenced_by: [], ...changes }) as unknown as AlertJson;
  const ofWindow = (window: string, changes: object = {}) =>
    alert({ file: "slo", name: "SloBudgetBurn", labels: { slo: "pay", window }, ...changes });
  const silenced = alert({ file: "a", fingerprint: "1", silenced_by: ["x"] });
  const acknowledged = alert({ file: "a", fingerprint: "2", acknowledgement: { by: "ann" } });
  const free = alert({ file: "a", fingerprint: "3" });
  const all = [ofWindow("1h"), ofWindow("6h"), silenced, acknowledged, free];
  expect(countFiring(all)).toBe(2);
  expect(countFiring([silenced])).toBe(0);
});

test("a replay becomes periods, from the start of the range to its end", () => {
  const replay = toReplay({
    from_ns: 0,
    to_ns: 100e6,
    rules: [
      {
        summary: "would have fired 1 time",
        fired: 1,
        alerts: [
          {
            labels: { alertname: "Slow", host: "a" },
            state_at_start: "firing",
            transitions: [
              { at_ns: 10e6, state: "inactive" },
              { at_ns: 50e6, state: "pending" },
              { at_ns: 60e6, state: "firing" },
            ],
            omitted_transitions: 0,
          },
        ],
      },
    ],
  });
  expect(replay.alerts).toEqual([
    {
      name: 'host="a"',
      omitted: 0,
      periods: [
        { state: "firing", start: 0, end: 10 },
        { state: "pending", start: 50, end: 60 },
        { state: "firing", start: 60, end: 100 },
      ],
    },
  ]);
});

const DRAFT: RuleDraft = {
  name: "LatencyHigh",
  condition: "p99",
  selector: 'latency{host="it\'s"}',
  threshold: "250ms",
  limit: 1,
  window: "5m",
  hold: "5m",
};

test("a rule has the threshold in PromQL, quoted for YAML", () => {
  expect(ruleExpression({ ...DRAFT, selector: "x" })).toBe(
    "histogram_quantile(0.99, sum(exact_increase(x[5m]))) > 250ms",
  );
  expect(ruleExpression({ ...DRAFT, selector: "x", condition: "share" })).toBe(
    "histogram_fraction(250ms, +Inf, sum(exact_increase(x[5m]))) > 0.01",
  );
  expect(ruleExpression({ ...DRAFT, selector: "x", condition: "count", limit: 100 })).toBe(
    "histogram_count_above(250ms, sum(exact_increase(x[5m]))) > 100",
  );
  expect(ruleYaml(DRAFT)).toContain(
    `expr: 'histogram_quantile(0.99, sum(exact_increase(latency{host="it''s"}[5m]))) > 250ms'`,
  );
});

test("a rule is one of topdeck with its criterion", () => {
  expect(ruleToml(DRAFT)).toBe(`interval = "1min"

[[rule]]
name = 'LatencyHigh'
select = "latency{host=\\"it's\\"}"
by = []
window = "5min"
for = "5min"

[[rule.criteria]]
severity = 1
quantile = 0.99
above = '250ms'
`);
  expect(ruleToml({ ...DRAFT, condition: "share", hold: "0s" })).toContain(
    `for = "0s"\n\n[[rule.criteria]]\nseverity = 1\nshare_above = '250ms'\nabove = "1%"`,
  );
  expect(ruleToml({ ...DRAFT, condition: "count", threshold: "0.25", window: "1h" })).toMatch(
    /window = "1h"[^]*count_above = 0\.25\nabove = 1\n/,
  );
});

test("thresholds and names of rules", () => {
  expect([
    promqlThreshold(250e6, "ns"),
    promqlThreshold(1.5, "s"),
    promqlThreshold(0.0001, "s"),
    promqlThreshold(12, "B"),
    promqlThreshold(0, "s"),
  ]).toEqual(["250ms", "1500ms", "0.0001", "12", "0"]);
  expect([
    ruleName('http.latency{a="b"}'),
    ruleName("checkout_latency"),
    ruleName('{"x"}'),
  ]).toEqual(["HttpLatencyHigh", "CheckoutLatencyHigh", "ThresholdHigh"]);
  expect(["latency", "and(a:b)"].map(isPromqlSelector)).toEqual([true, false]);
});

test("an alert is of a row whose metric its rule reads", () => {
  const alert = { query: "histogram_max(latency_seconds_bucket[5m]) > 1", labels: { zone: "a" } };
  expect(isAlertOf(alert, { name: "latency", labels: {} })).toBe(true);
  expect(isAlertOf(alert, { name: "latency", labels: { zone: "a", host: "x" } })).toBe(true);
  expect(isAlertOf(alert, { name: "latency", labels: { zone: "b" } })).toBe(false);
  expect(isAlertOf(alert, { name: "late", labels: {} })).toBe(false);
  // The labels of its query, too: an SLO's alert has only the name of the SLO.
  const burn = { query: 'burn_rate(14, sum(rate(latency{service="pay"}[1h])))', labels: {} };
  expect(isAlertOf(burn, { name: "latency", labels: { service: "pay" } })).toBe(true);
  expect(isAlertOf(burn, { name: "latency", labels: { service: "cart" } })).toBe(false);
  const both = { query: 'latency{service="pay"} / latency{service="cart"}', labels: {} };
  expect(isAlertOf(both, { name: "latency", labels: { service: "cart" } })).toBe(true);
  const quoted = { query: '{"http.duration"} > 1', labels: {} };
  expect(isAlertOf(quoted, { name: "http.duration", labels: {} })).toBe(true);
});

test("a duration that was read in few steps is approximate", () => {
  expect(describeFiring(0, 0, 60_000)).toBe("pending only");
  expect(describeFiring(1, 240_000, 240_000)).toBe("fired once, about 4 min");
  expect(describeFiring(2, 7_200_000, 60_000)).toBe("fired 2 times, 2 h");
});

/** Changes in milliseconds, the oldest first. */
function changes(...all: [number, AlertChangeJson["event"]][]): AlertChangeJson[] {
  return all
    .map(([ms, event]): AlertChangeJson => {
      const labels = { alertname: "Slow", host: "a" };
      return { time_ns: ms * 1e6, event, name: "Slow", labels, source: "rule" };
    })
    .reverse();
}
const sampled = (...times: number[]) =>
  toRows([series({ alertname: "Slow", host: "a", alertstate: "firing" }, times)], 60, 1_000);

// An alert that fired for 7 s was shown with the two minutes from one evaluation to the next.
test("a state has the times of its changes, not those of the samples", () => {
  const history = changes([100, "pending"], [130, "firing"], [137, "resolved"]);
  const [row] = refineRows(sampled(180), { history, next: null }, 60, [0, 1_000]);
  expect(row).toMatchObject({
    key: 'Slow {host="a"}',
    isExact: true,
    fired: 1,
    firingMs: 7,
    periods: [
      { state: "pending", start: 100, end: 130, isOpen: false },
      { state: "firing", start: 130, end: 137, isOpen: false },
    ],
  });
  // It need not be in the samples.
  expect(refineRows([], { history, next: null }, 60, [0, 1_000])).toEqual([row]);
});

test("a state lasts from before the range, and on after it", () => {
  const history = changes([100, "resolved"], [900, "firing"]);
  const [row] = refineRows(sampled(60, 120, 960), { history, next: null }, 60, [40, 1_000]);
  expect(row!.periods).toEqual([
    { state: "firing", start: 40, end: 100, isOpen: false },
    { state: "firing", start: 900, end: 1_000, isOpen: true },
  ]);
});

test("what the changes do not tell is that of the samples", () => {
  const history = changes([600, "firing"]);
  // The rule was removed at 720; earlier changes are not kept any more.
  const [row] = refineRows(sampled(120, 660, 720), { history, next: 7 }, 60, [0, 1_000]);
  expect(row!.isExact).toBe(false);
  expect(row!.periods.map(({ start, end }) => [start, end])).toEqual([
    [60, 120],
    [600, 720],
  ]);
  const rows = sampled(120);
  expect(refineRows(rows, { history: [], next: null }, 60, [0, 1_000])).toEqual(rows);
});
