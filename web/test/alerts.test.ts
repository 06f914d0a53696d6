import { expect, test } from "vitest";

import {
  alertRange,
  commonLabels,
  countConditions,
  describeCounts,
  describeNext,
  describeTab,
  describeValue,
  formatAge,
  groupAlerts,
  isWebAddress,
  otherLabels,
  queryLink,
  selectorLink,
  severityOf,
  shownAnnotations,
  sortAlerts,
  splitLimit,
  stateSteps,
  type AlertJson,
} from "../src/lib/alerts";
import { read } from "../src/lib/link";
import { formatDateTime } from "../src/lib/time";

const NOW = Date.UTC(2026, 10, 26, 12);

function alert(changes: Partial<AlertJson> = {}): AlertJson {
  return {
    name: "Slow",
    source: "rule",
    fingerprint: "b5cdda85c6e43283",
    state: "firing",
    labels: { alertname: "Slow", host: "a" },
    annotations: {},
    value: 7.5,
    since_ns: (NOW - 60e3) * 1e6,
    fired_ns: null,
    unknown_since_ns: null,
    next: null,
    why: "the condition holds",
    is_flapping: false,
    acknowledgement: null,
    silenced_by: [],
    group: "g",
    file: "rules.yaml",
    line: 3,
    query: "depth > 5",
    ...changes,
  };
}

test("the most severe alert is first: firing, unknown, pending", () => {
  const acknowledgement = { at_ns: 0, until_ns: 0, by: "", note: "" };
  const severity = (severity: string) => ({ labels: { severity } });
  const sorted = sortAlerts([
    alert({ name: "pending", state: "pending", ...severity("page") }),
    alert({ name: "unknown", unknown_since_ns: 1 }),
    alert({ name: "unknown, was pending", state: "pending", unknown_since_ns: 1, since_ns: 1 }),
    alert({ name: "acknowledged", acknowledgement, ...severity("page") }),
    alert({ name: "info", ...severity("info") }),
    alert({ name: "warning", ...severity("warning") }),
    alert({ name: "earlier page", since_ns: 1, ...severity("page") }),
    alert({ name: "page", ...severity("critical") }),
    alert({ name: "without" }),
  ]);
  expect(sorted.map(({ name }) => name)).toEqual([
    "page",
    "earlier page",
    "without",
    "warning",
    "info",
    "acknowledged",
    "unknown",
    "unknown, was pending",
    "pending",
  ]);
  expect(countConditions(sorted)).toEqual({ firing: 6, unknown: 2, pending: 1 });
});

test("the tab counts firing alerts, and none without a connection", () => {
  const alerts = [alert(), alert(), alert({ unknown_since_ns: 1 }), alert({ state: "pending" })];
  expect(describeTab(alerts, true)).toBe("2 firing, 1 unknown");
  expect(describeTab(alerts.slice(0, 2), true)).toBe("2 firing");
  expect(describeTab(alerts.slice(3), true)).toBe("");
  expect(describeTab(alerts, false)).toBe("? firing");
  expect(describeTab([], false)).toBe("? firing");
  expect(describeTab(null, true)).toBe("");
});

test("silenced and acknowledged alerts are counted apart, and are not in the tab", () => {
  const acknowledgement = { at_ns: 0, until_ns: 0, by: "ann", note: "" };
  const alerts = [
    alert(),
    alert({ acknowledgement }),
    alert({ silenced_by: ["s"] }),
    alert({ silenced_by: ["s"], acknowledgement }),
    alert({ silenced_by: ["s"], unknown_since_ns: 1 }),
  ];
  expect(describeCounts(alerts)).toBe(
    "4 firing (1 acknowledged, 2 silenced), 1 unknown (1 silenced), 0 pending",
  );
  expect(describeTab(alerts, true)).toBe("1 firing");
  expect(describeTab(alerts.slice(1), true)).toBe("");
});

test.each([
  [{ severity: 5, labels: { severity: "page" } }, 5],
  [{ labels: { severity: "Critical" } }, 1],
  [{ labels: { severity: "4" } }, 4],
  [{ labels: { severity: "wrong" } }, 2],
  [{ severity: null, labels: {} }, 2],
])("severity of %j is %d: that of an own rule, else the label", (changes, expected) =>
  expect(severityOf(alert(changes))).toBe(expected),
);

test("the link of an own rule with a selector has the selector and the threshold", () => {
  const criterion = {
    text: "quantile 0.99 above 250ms of checkout within 5 min",
    lower: 7.1e8,
    estimate: 7.2e8,
    upper: 7.3e8,
    threshold: 2.5e8,
    unit: "ns",
  };
  const range = { from: "-1h", to: "now" };
  expect(read(selectorLink(alert({ query: "checkout", criterion }), range)!)).toEqual({
    view: "explore",
    settings: { selector: "checkout", threshold: "250ms", ...range },
  });
  const none = { ...criterion, threshold: null, unit: "" };
  expect(
    read(selectorLink(alert({ query: "checkout", criterion: none }), range)!).settings,
  ).toEqual({ selector: "checkout", ...range });
  // The threshold of a forecast is a time until then.
  const forecast = { ...criterion, forecast: "full in 3 d 4 h (p10 2 d 1 h, p90 6 d)" };
  expect(
    read(selectorLink(alert({ query: "checkout", criterion: forecast }), range)!).settings,
  ).toEqual({ selector: "checkout", ...range });
  const query = { ...criterion, text: "value above 5 of checkout" };
  expect(selectorLink(alert({ query: "checkout", criterion: query }), range)).toBe(null);
  expect(selectorLink(alert(), range)).toBe(null);
});

test("a received alert ends unless it is received again", () => {
  const next = (ms: number) => ({ at_ns: (NOW + ms) * 1e6, state: "inactive" });
  const received = (ms: number) => alert({ source: "received", next: next(ms) });
  expect(describeNext(received(300e3), NOW)).toBe("ends in 5 min unless it is received again");
  expect(describeNext(received(-5e3), NOW)).toBe("ends now unless it is received again");
});

test("a firing alert whose data is missing is unknown: it is neither firing nor resolved", () => {
  const unknown = alert({ unknown_since_ns: 1 });
  expect(countConditions([unknown])).toEqual({ firing: 0, unknown: 1, pending: 0 });
  expect(describeNext(unknown, NOW)).toMatch(/^no deadline: the state is held/);
  expect(describeValue(unknown).meaning).toMatch(/^when the condition last held; /);
});

test.each([
  ["depth > 5", ["depth", ">", "5"]],
  [
    "sum by (zone) (rate(x[5m])) / 3>=  -1.5e3",
    ["sum by (zone) (rate(x[5m])) / 3", ">=", "-1.5e3"],
  ],
  ['up{job="a > b"} == 0', ['up{job="a > b"}', "==", "0"]],
  ["(a > 1 or b) != .5", ["(a > 1 or b)", "!=", ".5"]],
  ["a > 1 and b < 2", null],
  ["a > b > 2", null],
  ["a unless b > 2", null],
  ["a > bool 2", null],
  ["5 < depth", null],
  ["absent(up)", null],
  ["a > 1 # comment > 2", null],
  ["f(a > 2", null],
])("the condition of %s is %j", (query, expected) => {
  const found = splitLimit(query);
  expect(found && [found.expression, found.operator, found.limit]).toEqual(expected);
});

test.each([
  [alert(), "7.5", "the alert is for values above 5"],
  [alert({ query: "up == 0", value: 0 }), "0", "the alert is for values equal to 0"],
  [alert({ query: "absent(up)", value: 1 }), "1", "result of the query"],
  [alert({ value: "+Inf" }), "+Inf", "the alert is for values above 5"],
  [alert({ value: 12_345 }), "12.3k", "the alert is for values above 5"],
])("a value is shown with its meaning: %#", (one, value, meaning) =>
  expect(describeValue(one)).toEqual({ value, meaning }),
);

test.each([
  [{ at: 80_000, state: "firing" }, "fires in 1 min 20 s if it stays so"],
  [{ at: 79_100, state: "firing" }, "fires in 1 min 20 s if it stays so"],
  [{ at: 100, state: "firing" }, "fires at the next evaluation if it stays so"],
  [{ at: -5_000, state: "firing" }, "fires at the next evaluation if it stays so"],
  [{ at: 300_000, state: "inactive" }, "ends in 5 min if the condition stays away"],
])("the next deadline %j: %s", ({ at, state }, expected) => {
  const next = { at_ns: (NOW + at) * 1e6, state };
  expect(describeNext(alert({ next }), NOW)).toBe(expected);
});

test("an alert of a query that fails has no deadline", () => {
  const pending = alert({ state: "pending", next: { at_ns: NOW * 1e6, state: "firing" } });
  expect(describeNext(pending, NOW, true)).toMatch(/^no deadline: the query fails/);
});

test.each([
  [0, "now"],
  [999, "now"],
  [-5_000, "now"],
  [61_900, "1 min 1 s ago"],
])("an age of %d ms is %s", (age, expected) => expect(formatAge(NOW - age, NOW)).toBe(expected));

test("an alert without a deadline fires until the condition no longer holds", () =>
  expect(describeNext(alert(), NOW)).toBe("fires until the condition no longer holds"));

test("the link to Explore has the query, and a range around the start of the alert", () => {
  const recent = alert();
  expect(alertRange(recent, NOW)).toEqual({ from: "2026-11-26T11:29Z", to: "now" });
  const old = alert({ since_ns: (NOW - 86_400e3) * 1e6 });
  const range = alertRange(old, NOW);
  expect(range).toEqual({ from: "2026-11-25T11:30Z", to: "2026-11-25T12:30Z" });
  // As the link of a message: `crates/alerts/src/alert_link.rs`.
  const link =
    "#/explore?from=2026-11-22T05:00:00Z&selector=latency%7Bhost%3D%22a%22%7D&threshold=0.25s" +
    "&to=2026-11-22T06:00:00Z&v=2";
  expect(read(link)).toEqual({
    view: "explore",
    settings: {
      from: "2026-11-22T05:00:00Z",
      selector: 'latency{host="a"}',
      threshold: "0.25s",
      to: "2026-11-22T06:00:00Z",
    },
  });
  expect(read(queryLink('x{a="b"} > 5', range))).toEqual({
    view: "explore",
    settings: { language: "promql", query: 'x{a="b"} > 5', ...range },
  });
});

test("labels and annotations: the summary first, empty ones and the name left out", () => {
  expect(otherLabels({ alertname: "x", host: 'a"b' })).toEqual(['host="a\\"b"']);
  const annotations = { runbook_url: "https://x/y", empty: " ", description: "d", summary: "s" };
  expect(shownAnnotations(alert({ annotations })).map(([name]) => name)).toEqual([
    "summary",
    "description",
    "runbook_url",
  ]);
});

test("a script is no link", () => {
  expect(isWebAddress("https://wiki.example/runbook")).toBe(true);
  expect(isWebAddress("javascript:alert(1)")).toBe(false);
  expect(isWebAddress("see https://wiki.example")).toBe(false);
});

// Four cards of one SLO hid the other alerts.
test("the windows of an SLO are one group, in the place of the worst", () => {
  const window = (slo: string, window: string, severity: string) =>
    alert({
      name: "SloBudgetBurn",
      file: "slo",
      group: slo,
      labels: { alertname: "SloBudgetBurn", slo, window, severity },
    });
  const groups = groupAlerts([
    window("checkout", "1h", "page"),
    alert({ name: "Slow" }),
    window("checkout", "3d", "warning"),
    window("search", "1h", "page"),
    alert({ ...window("checkout", "6h", "page"), name: "SloEventsAffected" }),
    alert({ name: "Slow", labels: { alertname: "Slow", slo: "checkout", window: "1h" } }),
  ]);
  const names = groups.map(({ alerts }) => alerts.map(({ labels }) => labels["window"] ?? "-"));
  expect(names).toEqual([["1h", "3d"], ["-"], ["1h"], ["6h"], ["1h"]]);
  expect(new Set(groups.map(({ key }) => key)).size).toBe(5);
  expect(commonLabels(groups[0]!.alerts)).toEqual({ alertname: "SloBudgetBurn", slo: "checkout" });
});

test("the states of an alert are shown in their order, with the next deadline", () => {
  const check = (one: AlertJson, expected: string[], isFailing = false) => {
    const steps = stateSteps(one, NOW, isFailing);
    const shown = steps.map(({ name, when }) => `${name} ${when}`.trim());
    expect(shown).toEqual(expected);
    return steps.findIndex(({ isCurrent }) => isCurrent);
  };
  const next = (ms: number, state: string) => ({ at_ns: (NOW + ms) * 1e6, state });
  const times = [NOW - 120e3, NOW - 60e3] as const;
  const [since, fired] = times.map((ms) => `since ${formatDateTime(ms)}`);
  const [since_ns, fired_ns] = [times[0] * 1e6, times[1] * 1e6];
  const pending = alert({ state: "pending", since_ns, next: next(80e3, "firing") });
  const states = ["ok", `pending ${since}`, "firing in 1 min 20 s", "ok"];
  expect(check(pending, states)).toBe(1);
  const ending = alert({ since_ns, fired_ns, next: next(100, "inactive") });
  const ends = ["ok", `pending ${since}`, `firing ${fired}`, "ok at the next evaluation"];
  expect(check(ending, ends)).toBe(2);
  // It fired at once; the query fails, so that there is no deadline.
  const atOnce = alert({ since_ns: fired_ns, fired_ns, next: next(5e3, "inactive") });
  expect(check(atOnce, ["ok", `firing ${fired}`, "ok"], true)).toBe(1);
  const unknown = alert({ since_ns, fired_ns, source: "received", unknown_since_ns: 1 });
  expect(check(unknown, ["ok", `firing, unknown ${fired}`, "ok"])).toBe(1);
});
