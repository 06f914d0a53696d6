import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { exact } from "../src/lib/distribution";
import { headlineNow, headlineToday, summarise } from "../src/lib/headline";
import {
  describeThreshold,
  describeThresholdWait,
  describeUnusual,
  describeUsers,
  describeWorst,
  explainUsers,
  exploreLink,
  hasNoValues,
  hasYesterday,
  isProvisional,
  hourLink,
  lacksThreshold,
  loadThresholds,
  metricLink,
  nowLink,
  roundDuration,
  sameHoursLink,
  shownState,
  startOfToday,
  storeThreshold,
  unknownLast,
  unknownReason,
  wasAffected,
  type OverviewRow,
} from "../src/lib/overview";

const NOW = Date.UTC(2026, 10, 26, 12);
const HOUR = 3_600e3;

beforeEach(() => vi.stubGlobal("window", { localStorage: { setItem() {}, removeItem() {} } }));
afterEach(() => vi.unstubAllGlobals());

function row(changes: Partial<OverviewRow> = {}): OverviewRow {
  return {
    name: "http.server.request.duration",
    labels: { service_name: "cart" },
    service: "cart",
    unit: "s",
    noun: "requests",
    selector: "latency",
    state: "usual",
    stateToday: "usual",
    affectedNow: 0,
    affectedSince: null,
    burnRateNow: exact(0),
    expectedShare: 0.01,
    expectedNow: 12,
    expectedToday: 50,
    worstHour: null,
    aboveNow: exact(0),
    aboveToday: exact(0),
    users: null,
    countNow: 1_200,
    countToday: 5_000,
    threshold: { value: 0.25, origin: "user", learnedFrom: null },
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

/** An overview that shows all of its rows. */
const of = (...rows: OverviewRow[]) => shown(rows, rows);

/** One that shows some of its rows. */
const shown = (rows: OverviewRow[], all: OverviewRow[]) => ({
  now: NOW,
  todayStart: NOW - 12 * HOUR,
  total: all.length,
  incomplete: 0,
  summary: summary(all),
  thresholdValues: 500,
  unranked: [],
  rows,
});

/** What the server says of all rows. */
function summary(all: OverviewRow[]) {
  const count = (state: OverviewRow["state"]) => all.filter((row) => row.state === state).length;
  const isEarlier = (row: OverviewRow) =>
    row.state !== "affected" && (row.worstHour !== null || row.stateToday === "affected");
  const worst = (rows: OverviewRow[], rate: (row: OverviewRow) => number) =>
    [...rows].sort((a, b) => rate(b) - rate(a)).slice(0, 4);
  const earlier = all.filter(isEarlier);
  return {
    affected: count("affected"),
    uncertain: count("uncertain"),
    usual: count("usual"),
    unknown: count("unknown"),
    withoutThreshold: all.filter((row) => row.threshold === null && row.countNow > 0).length,
    affectedEarlier: earlier.length,
    usualAgain: earlier.filter((row) => row.state === "usual").length,
    worstNow: worst(
      all.filter((row) => row.state === "affected"),
      (row) => row.burnRateNow?.lower ?? 0,
    ),
    worstEarlier: worst(earlier, (row) => row.worstHour?.burnRate.lower ?? 1),
  };
}

const rate = (lower: number, estimate: number) => ({ lower, estimate, upper: estimate });
const period = { start: NOW - 4 * HOUR, end: NOW - 3 * HOUR, above: exact(700), count: 6_000 };
const hour = { ...period, burnRate: rate(20, 23.3), period };

test("the summary names the worst service, how many requests, and what is unknown", () => {
  const bad = row({ state: "affected", affectedNow: 40, aboveNow: exact(40) });
  const silent = row({ state: "unknown", countNow: 0 });
  expect(summarise(of(bad, row(), silent))).toBe(
    "1 of 3 affected. Worst: cart (http.server.request.duration), 40 of 1,200 requests above " +
      "250 ms in the last 5 minutes. 1 unknown.",
  );
  expect(summarise(of(row(), silent))).toBe(
    "1 of 2 rows are normal now, in the last 5 minutes. 1 unknown.",
  );
  const wide = row({ state: "uncertain", affectedNow: null });
  expect(summarise(of(row(), wide))).toBe(
    "1 of 2 rows are normal now, in the last 5 minutes. 1 uncertain.",
  );
  expect(summarise(of(row(), row()))).toBe("All 2 rows are normal now, in the last 5 minutes.");
  expect(summarise(of(row()))).toBe("The only row is normal now, in the last 5 minutes.");
  expect(summarise(of(silent))).toBe("Nothing is known about the last 5 minutes. 1 unknown.");
});

test("users are sessions or users, with their bounds, and unknown ones say why", () => {
  const reason = "users limit (1000) exceeded: there are 2000";
  const sessions = { label: "session_id", now: exact(1), today: exact(1_200), reason };
  expect(describeUsers(sessions, sessions.now)).toBe("1 session");
  expect(describeUsers(sessions, sessions.today)).toBe("1,200 sessions");
  expect(explainUsers(sessions, sessions.now)).toContain("label session_id");
  const users = { ...sessions, label: "customer" };
  expect(describeUsers(users, { lower: 3, estimate: 4, upper: 9 })).toBe("3–9 users");
  expect(describeUsers(users, null)).toBe("users unknown");
  expect(explainUsers(users, null)).toBe(reason);
});

test("what is unknown is after what is known, unless it was affected today", () => {
  const probe = row({ service: "probe", state: "unknown" });
  const fell = row({ service: "fell", state: "unknown", stateToday: "affected" });
  const ended = row({ service: "ended", state: "unknown", worstHour: hour });
  const order = unknownLast([probe, fell, ended, row({ service: "cart" })]);
  expect(order.map(({ service }) => service)).toEqual(["fell", "ended", "cart", "probe"]);
  // On a new server, metrics of jobs that had ended were above what has values.
  const job = row({
    service: "job",
    state: "unknown",
    threshold: null,
    countNow: 0,
    unusual: { ratio: null, reason: "history too short", days: 0, daysMin: 3 },
  });
  const fresh = row({ service: "fresh", state: "unknown", threshold: null, countNow: 9 });
  const young = unknownLast([
    job,
    fresh,
    row({ service: "silent", state: "unknown", countNow: 0 }),
  ]);
  expect(young.map(({ service }) => service)).toEqual(["fresh", "silent", "job"]);
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

// At 00:17 an incident from 21:26 to 22:12 was gone, and everything was green.
test("before six o'clock the day begins yesterday, and says so", () => {
  const midnight = new Date(NOW).setHours(0, 0, 0, 0);
  const yesterday = new Date(midnight - 12 * HOUR).setHours(0, 0, 0, 0);
  expect(startOfToday(midnight + HOUR / 4)).toBe(yesterday);
  expect(startOfToday(midnight + 6 * HOUR)).toBe(midnight);
  const payment = row({ service: "payment", worstHour: hour });
  const early = { ...of(payment), now: midnight + HOUR, todayStart: yesterday };
  expect(hasYesterday(early)).toBe(true);
  expect(headlineToday(early)?.text).toMatch(/^Since yesterday, not now, 1 of 1 rows was affected/);
  expect(hasYesterday({ now: midnight + 7 * HOUR, todayStart: midnight })).toBe(false);
});

// On the day that clocks go forward six o'clock was five hours after midnight, and on the other one
// seven.
test("six o'clock is that of the clock where clocks change", () => {
  const before = process.env["TZ"];
  process.env["TZ"] = "Europe/London";
  try {
    const starts = (year: number, month: number, day: number) =>
      [5, 6].map((hour) => startOfToday(new Date(year, month, day, hour, 30).getTime()));
    const midnight = (year: number, month: number, day: number) =>
      new Date(year, month, day).getTime();
    expect(starts(2026, 2, 29)).toEqual([midnight(2026, 2, 28), midnight(2026, 2, 29)]);
    expect(starts(2026, 9, 25)).toEqual([midnight(2026, 9, 24), midnight(2026, 9, 25)]);
  } finally {
    if (before === undefined) delete process.env["TZ"];
    else process.env["TZ"] = before;
  }
});

// "All 8 rows are normal now" stood below "2 alerts firing".
test("a row with a firing alert, or with a threshold of minutes, is not normal", () => {
  const threshold = { value: 0.25, origin: "p99", learnedFrom: 25 * 60e3 } as const;
  const young = row({ threshold, aboveNow: { lower: 3, estimate: 3, upper: 3 } });
  expect(isProvisional(young)).toBe(true);
  expect(isProvisional(row({ threshold: { ...threshold, learnedFrom: 2 * HOUR } }))).toBe(false);
  expect([shownState(young, false), shownState(young, true)]).toEqual(["unknown", "affected"]);
  expect(shownState(row(), false)).toBe("usual");
  // A red row said "0 of 5,400 requests".
  expect(shownState(row({ aboveNow: { lower: 0, estimate: 0, upper: 0 } }), true)).toBe(
    "uncertain",
  );
  const checkout = row({ service: "checkout" });
  const isAlarmed = (of: OverviewRow) => of.service === "checkout";
  expect(summarise(of(row(), checkout), isAlarmed)).toBe(
    "1 of 2 rows are normal now, in the last 5 minutes. 1 with a firing alert or a spent budget.",
  );
  expect(summarise(of(young, checkout), isAlarmed)).toBe(
    "No row is known to be normal. 1 with a firing alert or a spent budget. " +
      "1 with a threshold of minutes only.",
  );
});

// Three hours after an incident the page was all green.
test("an incident of this morning is in the summary, with its hour and the expected share", () => {
  const payment = row({
    service: "payment",
    expectedShare: 0.005,
    threshold: { value: 0.25, origin: "slo", slo: "payments", learnedFrom: null },
    worstHour: hour,
  });
  const orders = row({
    service: "orders",
    stateToday: "affected",
    aboveToday: exact(120),
  });
  const today = headlineToday(of(row(), orders, payment));
  const tick = (at: number) => new Date(at).toTimeString().slice(0, 5);
  expect(today?.text).toBe(
    "Earlier today, not now, 2 of 3 rows were affected. Worst: payment " +
      "(http.server.request.duration), 700 of 6,000 requests above 250 ms from " +
      `${tick(hour.start)} to ${tick(hour.end)} (whole hours): 11.67 %, 23.3\u00a0× the expected ` +
      "0.5\u00a0% (SLO payments); not chance (p < 0.001). Then orders 2.4\u00a0×.",
  );
  expect(today?.row.service).toBe("payment");
  expect(hourLink(payment, period, NOW)).toBe(
    "#/explore?breakdown=1795680000000,1795683600000,0.25,Infinity&from=2026-11-26T07:00Z" +
      "&selector=latency&threshold=250ms&to=2026-11-26T10:00Z&v=2",
  );
  // 945 of 20,088 here, 919 of 7,644 in Explore: a link has the same hours there.
  expect(sameHoursLink(payment, period)).toBe(
    "#/explore?from=2026-11-26T08:00Z&selector=latency&threshold=250ms&to=2026-11-26T09:00Z&v=2",
  );
  expect(headlineToday(of(row()))).toBeNull();
  // Of a row that was affected it is not known whether it is over.
  const unknown = headlineToday(of(row(), { ...payment, state: "unknown" }));
  expect(unknown?.text).toMatch(/^Today 1 of 2 rows was affected/);
});

// The headline named the service with most requests above its threshold over the day.
test("the worst hour in relation to its objective comes before many requests of a day", () => {
  const payment = row({ service: "payment", worstHour: hour });
  const ledger = row({
    service: "ledger",
    stateToday: "affected",
    aboveToday: exact(7_767),
    countToday: 682_196,
    worstHour: {
      ...hour,
      burnRate: rate(1.6, 1.9),
      period: { ...period, above: exact(1_041), count: 56_011 },
    },
  });
  const today = headlineToday(of(ledger, payment));
  expect(today?.row.service).toBe("payment");
  expect(today?.text).toContain("Then ledger 1.9\u00a0×.");
  // Its row was green, with fewer requests of the day than expected.
  const usual = { ...ledger, stateToday: "usual" } as const;
  expect([wasAffected(usual), describeWorst(usual)]).toEqual([true, "1.9×"]);
  expect([wasAffected(row()), describeWorst(row())]).toEqual([false, ""]);
  expect(today?.hours).toBe(period);
  // It did not end with the hour.
  const longer = { ...period, end: period.end + HOUR, above: exact(1_200), count: 12_000 };
  const both = headlineToday(of(row({ worstHour: { ...hour, period: longer } })));
  const tick = (at: number) => new Date(at).toTimeString().slice(0, 5);
  expect(both?.text).toContain(
    `1,200 of 12,000 requests above 250 ms from ${tick(longer.start)} to ${tick(longer.end)}`,
  );
});

test("what is bad now is the headline: which service, how many, since when, how sure", () => {
  const since = { start: NOW - 25 * 60e3, end: NOW - 24 * 60e3 };
  const cart = row({
    service: "cart",
    state: "affected",
    aboveNow: exact(40),
    burnRateNow: rate(2, 3.3),
    affectedSince: since,
    users: { label: "session", now: exact(12), today: exact(90), reason: "" },
  });
  // More requests above the threshold, of very many.
  const front = row({
    service: "front",
    state: "affected",
    aboveNow: exact(300),
    countNow: 20_000,
    burnRateNow: rate(1.2, 1.5),
  });
  const morning = row({ service: "payment", worstHour: hour });
  const overview = of(front, cart, morning);
  expect(summarise(overview)).toMatch(
    /^2 of 3 affected. Worst: cart \(.*\), 40 of 1,200 requests above 250 ms in the last 5 minutes/,
  );
  const now = headlineNow(overview);
  const tick = (at: number) => new Date(at).toTimeString().slice(0, 5);
  expect(now?.row.service).toBe("cart");
  expect(now?.text).toBe(
    `Since about ${tick(since.start)}. 3.33 % of its requests, 3.3\u00a0× the expected ` +
      "1\u00a0% (no SLO); not chance (p < 0.001). 12 sessions affected. Then front 1.5\u00a0×.",
  );
  expect(nowLink(cart, NOW)).toBe(
    "#/explore?breakdown=1795692900000,1795694400000,0.25,Infinity&from=2026-11-26T11:00Z" +
      "&selector=latency&threshold=250ms&to=2026-11-26T12:00Z&v=2",
  );
  expect(headlineToday(overview)?.text).toMatch(
    /^Earlier today 1 of 3 rows was affected. Worst: payment/,
  );
  const early = { start: NOW - 3 * HOUR, end: NOW - 2 * HOUR };
  expect(headlineNow(of({ ...cart, affectedSince: early }))?.text).toContain(
    `Since between ${tick(early.start)} and ${tick(early.end)}. `,
  );
  expect(headlineNow(of(morning))).toBeNull();
});

// The headline named the worst of the 80 rows that were shown.
test("the headline names the worst of all rows, shown or not, and counts all of them", () => {
  const bad = row({
    service: "payment",
    state: "affected",
    aboveNow: exact(90),
    countNow: 100,
    burnRateNow: rate(60, 90),
  });
  const busy = row({ ...bad, service: "front", aboveNow: exact(200), burnRateNow: rate(2, 3) });
  const morning = row({ service: "orders", worstHour: hour });
  const overview = shown([busy], [busy, row(), morning, bad]);
  expect(summarise(overview)).toMatch(/^2 of 4 affected\. Worst: payment /);
  expect(headlineNow(overview)?.row.service).toBe("payment");
  expect(headlineToday(overview)?.text).toMatch(/^Earlier today 1 of 4 rows was .* Worst: orders/);
});

test("a row without values is one only if its history has been read", () => {
  const reason = "no values in the last hour";
  const short = { ratio: null, reason, days: 0, daysMin: null } as const;
  const empty = { countNow: 0, countToday: 0, state: "unknown" } as const;
  expect(hasNoValues(row({ ...empty, unusual: short }))).toBe(true);
  expect(hasNoValues(row(empty))).toBe(false);
  // It stopped this morning.
  expect(hasNoValues(row({ ...empty, countToday: 7, unusual: short }))).toBe(false);
});

test("the name of a metric opens the whole metric", () => {
  expect(metricLink(row())).toBe("#/explore?selector=http.server.request.duration&v=2");
});

test("an unknown row says why", () => {
  const reason = (changes: Partial<OverviewRow>) => unknownReason(row(changes), NOW);
  expect(reason({ latest: null, countNow: 0 })).toBe("no data");
  expect(reason({ latest: NOW - 2.4 * HOUR, countNow: 0 })).toBe("no data for 2 h");
  expect(reason({ threshold: null })).toBe("not read yet");
  const short = { ratio: null, reason: "history too short", days: 0, daysMin: 3 } as const;
  expect(reason({ threshold: null, unusual: short })).toBe("not read yet");
  expect(reason({})).toBe("not read yet");
});

// On a new server, rate and percentiles were there, but what stood out was "unknown".
test("a row with few values says what is known, and when it has a threshold", () => {
  const short = { ratio: null, reason: "history too short", days: 0, daysMin: 3 } as const;
  const young = row({
    state: "unknown",
    threshold: null,
    aboveNow: null,
    unusual: short,
    countNow: 90,
    countToday: 200,
    rate: 0.5,
  });
  expect(lacksThreshold(young)).toBe(true);
  expect(describeThresholdWait(young, 500)).toBe("learned from 500 on, in about 15 min");
  expect(describeThresholdWait({ ...young, rate: 0 }, 500)).toBe("learned from 500 on");
  // Wide buckets: none of the values could ever be above the edge of the highest of them.
  expect(describeThresholdWait({ ...young, countToday: 5_400, countNow: 900 }, 500)).toBe(
    "set one: buckets too wide to tell",
  );
  expect(describeUnusual(young.unusual)).toBe("history too short, known in 3 d");
  expect(summarise(of(young))).toBe(
    "The only row has values, but no threshold yet: type one, or wait until it is learned.",
  );
  const silent = row({ state: "unknown", countNow: 0 });
  expect(summarise(of(young, young, silent))).toBe(
    "2 of 3 rows have values, but no threshold yet: type one, or wait until it is learned. " +
      "1 unknown.",
  );
  expect(summarise(of(young, row()))).toBe(
    "1 of 2 rows are normal now, in the last 5 minutes. 1 without a threshold yet.",
  );
  expect(lacksThreshold(silent)).toBe(false);
  expect(lacksThreshold({ ...young, unusual: null })).toBe(false);
});

test("thresholds say where they come from, and ratios why they are unknown", () => {
  const WEEK = 7 * 24 * HOUR;
  expect(describeThreshold({ value: 1, origin: "p99", learnedFrom: WEEK })).toBe("p99 of 7 d");
  const hourly = { value: 1, origin: "hourly_p99", learnedFrom: 5 * HOUR } as const;
  expect(describeThreshold(hourly)).toBe("median hourly p99 of 5 h");
  expect(describeThreshold({ value: 1, origin: "user", learnedFrom: null })).toBe("yours");
  const slo = { value: 1, origin: "slo", slo: "checkout", learnedFrom: null } as const;
  expect(describeThreshold(slo)).toBe("SLO checkout");
  const unknown = { ratio: null, reason: "history too short", days: 2, daysMin: 6 } as const;
  expect(describeUnusual(unknown)).toBe("history too short, known in 4 d");
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
