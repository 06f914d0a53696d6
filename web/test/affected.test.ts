import { expect, test } from "vitest";

import {
  countedRange,
  describeAffected,
  describeCertainty,
  distributionOf,
  lookbackOf,
} from "../src/lib/affected";
import type { AlertRow } from "../src/lib/alertHistory";
import { describePeriod, formatPeriod, lastPeriod } from "../src/lib/alertPeriod";
import type { AlertJson } from "../src/lib/alerts";
import { describeWindow } from "../src/lib/burnWindow";
import { exact } from "../src/lib/distribution";
import { DEFAULT_EXPECTED } from "../src/lib/excess";
import type { RuleRow } from "../src/lib/rules";
import { formatDateTime } from "../src/lib/time";

const NOON = new Date(2026, 10, 26, 12).getTime();
const MINUTE = 60e3;

const rule = (changes: Partial<RuleRow>) =>
  ({ labels: { severity: "page" }, distribution: null, ...changes }) as RuleRow;

test("the requests of an alert are those of its rule's distribution with its labels", () => {
  const distribution = { threshold: "800ms", selector: 'request_duration{service="payment"}' };
  const labels = { alertname: "Slow", region: "eu", severity: "page" };
  expect(distributionOf(labels, rule({ distribution }))).toEqual({
    threshold: "800ms",
    selector: 'request_duration{region="eu",service="payment"}',
    limit: "800 ms",
  });
  // An SLO with a threshold of 1 s was "above 1000ms".
  const limitOf = (threshold: string) =>
    distributionOf(labels, rule({ distribution: { ...distribution, threshold } }))?.limit;
  const limits = ["1000ms", "0.25", "1m", "2 * 1ms"].map(limitOf);
  expect(limits).toEqual(["1 s", "0.25", "1 min", "2 * 1ms"]);
  expect(distributionOf(labels, rule({}))).toBeNull();
  expect(distributionOf(labels, undefined)).toBeNull();
});

test("an own rule has the threshold of the criterion that holds, if it is an upper one", () => {
  const own = (text: string, changes: object = {}, query = "checkout") => {
    const criterion = { text, threshold: 250, unit: "ms", ...changes };
    const alert = { query, criterion } as unknown as AlertJson;
    return distributionOf({ alertname: "Slow" }, rule({}), alert);
  };
  const above = "quantile 0.99 above 250ms of checkout within 5 min";
  expect(own(above)).toEqual({ threshold: "250ms", selector: "checkout", limit: "250 ms" });
  expect(own("quantile 0.5 below 250ms of checkout within 5 min")).toBeNull();
  expect(own(above, { unit: "" })).toBeNull();
  expect(own(above, { forecast: "full in 2 h" })).toBeNull();
});

test("a rule about the share above 250 ms has a threshold: affected is no longer unknown", () => {
  const own = (limit?: string) => {
    const text = "share above 250ms above 0.05 of checkout within 5 min";
    const criterion = { text, threshold: 0.05, unit: "", limit };
    const alert = { query: "checkout", criterion } as unknown as AlertJson;
    return distributionOf({ alertname: "Slow", route: "/pay" }, rule({}), alert);
  };
  const selector = 'checkout{route="/pay"}';
  expect(own("250ms")).toEqual({ threshold: "250ms", selector, limit: "250 ms" });
  expect(own("2.5us")).toEqual({ threshold: "2.5us", selector, limit: "2.5 µs" });
  expect(own("2min")).toEqual({ threshold: "2min", selector, limit: "2 min" });
  expect(own("4096B")).toMatchObject({ threshold: "4096B" });
  expect(own("0.25")).toEqual({ threshold: "0.25", selector, limit: "0.25" });
  expect(own()).toBeNull();
});

test("a rule looks back for its longest range", () => {
  expect(lookbackOf("rate(a[5m]) + rate(b[1h])")).toBe(60 * MINUTE);
  expect(lookbackOf("quantile 0.99 above 250ms of checkout within 10 min")).toBe(10 * MINUTE);
  expect(lookbackOf("max_over_time(a[1h30m:1m])")).toBe(90 * MINUTE);
  expect(lookbackOf("value above 5 of depth within 1 h 30 min")).toBe(90 * MINUTE);
  expect(lookbackOf("value above 5 of depth within 1h")).toBe(60 * MINUTE);
  expect(lookbackOf("depth > 5")).toBe(5 * MINUTE);
});

test("card and history count the requests of an active alert in the same time, none ahead", () => {
  const query = "share of requests above 250ms above 0.05 of checkout within 5 min";
  const { from, to } = countedRange(NOON, query, NOON + 101e3);
  expect([from, to]).toEqual([NOON - 5 * MINUTE, NOON + 90e3]);
  expect(countedRange(NOON + 1, query, NOON + 2).to).toBe(NOON + 1);
});

test("how many, of how many, above what, and when", () => {
  const times = { from: NOON, to: NOON + 10 * MINUTE };
  const found = { total: 4_000, limit: "250 ms", expected: DEFAULT_EXPECTED, link: "", ...times };
  const period = formatPeriod(found.from, found.to);
  expect(describeAffected({ ...found, above: exact(120) })).toBe(
    `120 of 4,000 requests above 250 ms (3 %), ${period}`,
  );
  const near = { lower: 119, estimate: 120, upper: 122 };
  expect(describeAffected({ ...found, above: near })).toMatch(/^120 \(119–122\) of 4,000 /);
  const above = { lower: 100, estimate: 900, upper: 2_000 };
  expect(describeAffected({ ...found, above })).toMatch(
    /^100 to 2k of 4,000 requests above 250 ms \(buckets too wide to tell\), /,
  );
});

// The view Alerts said how many, but not how sure that is.
test("an alert says how sure it is, as overview and Explore do", () => {
  const times = { from: NOON, to: NOON + 10 * MINUTE };
  const found = { total: 4_000, limit: "1 s", link: "", ...times, above: exact(40) };
  expect(describeCertainty({ ...found, expected: DEFAULT_EXPECTED })).toBe(
    "1\u00a0% (no SLO) expected: usual",
  );
  expect(describeCertainty({ ...found, expected: { share: 0.005, slo: "payments" } })).toBe(
    "0.5\u00a0% (SLO payments) expected: more than chance explains (p < 0.001)",
  );
});

test("a period has start and end; a day later its end has a date, too", () => {
  expect(formatPeriod(NOON, NOON + 45 * MINUTE)).toBe("2026-11-26 12:00:00 to 12:45:00");
  expect(formatPeriod(NOON, NOON + 24 * 60 * MINUTE)).toBe(
    "2026-11-26 12:00:00 to 2026-11-27 12:00:00",
  );
});

test("a row of the history has the last time of firing, or since when its alert fires", () => {
  const period = (state: "pending" | "firing", from: number, to: number) => {
    return { state, start: NOON + from * MINUTE, end: NOON + to * MINUTE };
  };
  const row = (fired: number, ...periods: AlertRow["periods"]) =>
    ({ fired, periods }) as unknown as AlertRow;
  const history = { range: [NOON, NOON + 60 * MINUTE] as [number, number], step: MINUTE, rows: [] };
  const twice = row(2, period("firing", 0, 5), period("firing", 10, 20), period("pending", 30, 31));
  expect(lastPeriod(twice)).toEqual(period("firing", 10, 20));
  expect(describePeriod(twice, history)).toBe("last 2026-11-26 12:10:00 to 12:20:00");
  expect(describePeriod(row(1, period("firing", 10, 20)), history)).toBe(
    "2026-11-26 12:10:00 to 12:20:00",
  );
  expect(describePeriod(row(1, period("firing", 50, 59)), history)).toBe(
    `since ${formatDateTime(NOON + 50 * MINUTE)}`,
  );
  // With its changes, one that ended a second ago does not last.
  const ended = { ...period("firing", 50, 59.9), isOpen: false };
  expect(describePeriod(row(1, ended), history)).toBe("2026-11-26 12:50:00 to 12:59:54");
  expect(describePeriod(row(0, period("pending", 1, 2)), history)).toBe(
    "2026-11-26 12:01:00 to 12:02:00",
  );
});

test("the rules of an SLO differ by window and factor", () => {
  const of = (file: string, window: string, query: string) =>
    describeWindow({ file, query, labels: { slo: "checkout", window } });
  expect(of("slo", "1h", "burn_rate(14.4, 0.001, a, b, c, d) > 14.4")).toBe(
    "window 1h, factor 14.4",
  );
  expect(of("slo", "6h", "histogram_count_above(1s, a) > 10")).toBe("window 6h");
  expect(of("shop.yaml", "1h", "depth > 5")).toBe("");
});
