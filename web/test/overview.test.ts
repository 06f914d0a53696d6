import { beforeEach, expect, test, vi } from "vitest";

import { exact } from "../src/lib/distribution";
import {
  describeThreshold,
  describeUnusual,
  exploreLink,
  loadThresholds,
  roundDuration,
  storeThreshold,
  summarise,
  unknownReason,
  type OverviewRow,
} from "../src/lib/overview";

const NOW = Date.UTC(2026, 10, 26, 12);
const HOUR = 3_600e3;

beforeEach(() => vi.stubGlobal("window", { localStorage: { setItem() {}, removeItem() {} } }));

function row(changes: Partial<OverviewRow> = {}): OverviewRow {
  return {
    name: "http.server.request.duration",
    service: "cart",
    unit: "s",
    noun: "requests",
    selector: "latency",
    state: "usual",
    affectedNow: 0,
    expectedNow: 12,
    aboveNow: exact(0),
    aboveToday: exact(0),
    countNow: 1_200,
    countToday: 5_000,
    threshold: { value: 0.25, source: "user", learnedFrom: null },
    unusual: null,
    rate: 4,
    p50: null,
    p99: null,
    max: null,
    latest: NOW - 3e3,
    gaps: [],
    gapCount: 0,
    heatmap: null,
    ...changes,
  };
}

const of = (...rows: OverviewRow[]) => ({
  now: NOW,
  todayStart: NOW - 12 * HOUR,
  total: rows.length,
  incomplete: 0,
  unranked: [],
  rows,
});

test("the summary names the worst service, how many requests, and what is unknown", () => {
  const bad = row({ state: "affected", affectedNow: 40, aboveNow: exact(40) });
  const silent = row({ state: "unknown", countNow: 0 });
  expect(summarise(of(bad, row(), silent))).toBe(
    "1 of 3 affected. Most: cart (http.server.request.duration), 40 of 1,200 requests above " +
      "250 ms in the last 5 minutes. 1 unknown.",
  );
  expect(summarise(of(row(), silent))).toBe(
    "No more than expected above the threshold in 1 of 2 rows. 1 unknown.",
  );
  const wide = row({ state: "uncertain", affectedNow: null });
  expect(summarise(of(row(), wide))).toBe(
    "No more than expected above the threshold in 1 of 2 rows. 1 uncertain.",
  );
  expect(summarise(of(silent))).toBe("Nothing is known about the last 5 minutes. 1 unknown.");
});

test("a row opens the heatmap where its data is", () => {
  expect(exploreLink(row(), NOW)).toBe(
    "#/explore?from=-1h&selector=latency&threshold=250ms&to=now&v=2",
  );
  const old = row({ latest: NOW - 30 * HOUR, threshold: null });
  expect(exploreLink(old, NOW)).toBe(
    "#/explore?from=2026-11-25T05:00Z&selector=latency&to=2026-11-25T06:01Z&v=2",
  );
});

test("an unknown row says why", () => {
  const reason = (changes: Partial<OverviewRow>) => unknownReason(row(changes), NOW);
  expect(reason({ latest: null, countNow: 0 })).toBe("no data");
  expect(reason({ latest: NOW - 2.4 * HOUR, countNow: 0 })).toBe("no data for 2 h");
  expect(reason({ threshold: null })).toBe("not read yet");
  const short = { ratio: null, reason: "history too short", days: 0 } as const;
  expect(reason({ threshold: null, unusual: short })).toBe("no threshold yet");
  expect(reason({})).toBe("not read yet");
});

test("thresholds say where they come from, and ratios why they are unknown", () => {
  const WEEK = 7 * 24 * HOUR;
  expect(describeThreshold({ value: 1, source: "p99", learnedFrom: WEEK })).toBe("p99 of 7 d");
  expect(describeThreshold({ value: 1, source: "user", learnedFrom: null })).toBe("yours");
  const unknown = { ratio: null, reason: "history too short", days: 2 } as const;
  expect(describeUnusual(unknown)).toBe("history too short (2 of 3 d)");
  expect(describeUnusual({ ratio: exact(3.24), days: 7 })).toBe("3.2×");
  expect(describeUnusual(null)).toBe("not compared yet");
  expect(roundDuration(59_400)).toBe("59 s");
});

test("the user's thresholds are kept, and an empty one is removed", () => {
  const one = storeThreshold({}, "latency", "250ms");
  expect(loadThresholds()).toEqual({ latency: "250ms" });
  expect(storeThreshold(one, "latency", "")).toEqual({});
  expect(loadThresholds()).toEqual({});
});
