import { expect, test } from "vitest";

import {
  describeBudget,
  describeBurn,
  describeIndicator,
  firstEvents,
  formatAttained,
  formatBounds,
  formatObjective,
  formatRemaining,
  isSilentAround,
  knownPoints,
  leastBudget,
  nearestThreshold,
  parseObjective,
  periodDays,
  sinceFirstEvents,
  spentFirst,
  verdict,
  type BurnJson,
  type SloJson,
  type SloPointJson,
  type SloReportJson,
} from "../src/lib/slos";

const bracket = (lower: number, estimate: number, upper: number) => ({ lower, estimate, upper });

test("budgets that are spent come first, the least left before the others", () => {
  const slo = (name: string, state: string, estimate: number | null) => {
    const remaining = estimate === null ? null : { lower: estimate, estimate, upper: estimate };
    return { name, state, budget: { remaining } } as unknown as SloJson;
  };
  const slos = [
    slo("good", "remaining", 0.9),
    slo("wide", "uncertain", 0.1),
    slo("worse", "spent", -0.1),
    slo("bad", "spent", -1.5),
    slo("silent", "unknown", null),
  ];
  expect(spentFirst(slos).map(describeBudget)).toEqual(["bad −150 % left", "worse −10 % left"]);
  expect(leastBudget(slos)?.name).toBe("bad");
  expect(leastBudget(slos.slice(0, 2))?.name).toBe("wide");
  expect(leastBudget(slos.slice(4))).toBeNull();
});

test("an objective keeps its digits", () => {
  expect(formatObjective(0.999)).toBe("99.9 %");
  expect(formatObjective(0.99999)).toBe("99.999 %");
  expect(parseObjective("99.9%")).toBeCloseTo(0.999);
  expect(parseObjective("0.95")).toBe(0.95);
  for (const text of ["100%", "99.9", "0", "x"]) expect(parseObjective(text)).toBeNull();
});

test("an overspent budget is negative, and an unknown one is no number", () => {
  expect(formatRemaining(0.724)).toBe("72 %");
  expect(formatRemaining(-1.5)).toBe("−150 %");
  expect(formatRemaining(0)).toBe("0 %");
  expect(formatRemaining(-11480.2)).toBe("−1,148,020 %");
  expect(formatBounds(null, formatRemaining)).toBe("unknown");
  expect(formatBounds(bracket(0.7, 0.72, 0.75), formatRemaining)).toBe("72 % (70 % to 75 %)");
  expect(formatAttained(bracket(0.999, 0.999, 0.999))).toBe("99.9 %");
});

// A chart of 30 days without data had a flat line at 100 %.
test("what is unknown of a budget has no line", () => {
  const point = (remaining: number | null, total: number) =>
    ({
      remaining: remaining === null ? null : bracket(remaining, remaining, remaining),
      total,
    }) as SloPointJson;
  const points = [point(null, 0), point(1, 5), point(1, 0), point(1, 0), point(0.5, 5)];
  expect(knownPoints([...points, point(null, 0)])).toEqual(points.slice(1));
  expect(knownPoints([point(null, 0)])).toEqual([]);
  expect(points.map((_, at) => isSilentAround(points, at))).toEqual([
    false,
    false,
    true,
    false,
    false,
  ]);
});

test("an objective is attained or missed only if the bounds say so", () => {
  expect(verdict(bracket(0.99, 0.995, 1), 0.99)).toBe("attained");
  expect(verdict(bracket(0.98, 0.985, 0.989), 0.99)).toBe("missed");
  expect(verdict(bracket(0.98, 0.995, 1), 0.99)).toBe("uncertain");
});

test("the slider starts at the threshold of the SLO", () => {
  const at = (threshold: number) => ({ threshold, attained: bracket(1, 1, 1) });
  expect(nearestThreshold([at(10), at(100), at(250), at(1000)], 250)).toBe(2);
  expect(nearestThreshold([at(10), at(100)], 1e9)).toBe(1);
});

test("what is good is said in words", () => {
  const slo = { kind: "threshold", selector: "latency", threshold: "250 ms" } as SloJson;
  expect(describeIndicator(slo)).toBe("latency at most 250 ms");
  const ratio = { kind: "ratio", bad: "errors", total: "requests" } as SloJson;
  expect(describeIndicator(ratio)).toBe("requests without errors");
});

/** An SLO of seven days opened with 30 days, and one of yesterday with a month of nothing. */
test("an SLO shows its own period first, from its first events on", () => {
  const days = ["7d", "4w", "1y", "720h", "90min", "a quarter"].map(periodDays);
  expect(days).toEqual([7, 28, 365, 30, 1, 30]);
  const totals = (all: number[]) => all.map((total) => ({ total }));
  expect(sinceFirstEvents(totals([0, 0, 3, 0, 2]))).toEqual(totals([3, 0, 2]));
  expect(sinceFirstEvents(totals([0, 0]))).toEqual(totals([0, 0]));
});

/** "does not burn" stood beside a burn rate of 3 and a spent budget. */
test("the state of a burn-rate alert does not contradict the budget", () => {
  const describe = (is_burning: boolean | null, estimate: number | null) => {
    const long = estimate === null ? null : bracket(estimate, estimate, estimate);
    return describeBurn({ is_burning, long, factor: 14.4, severity: "page" } as BurnJson);
  };
  expect(describe(true, 20)).toBe("above the limit (page)");
  expect(describe(false, 0.4)).toBe("within the budget");
  expect(describe(false, 3.2)).toBe("spends the budget; below the limit");
  expect(describe(false, 20)).toContain("not in the short window, or too few events");
  expect(describe(null, null)).toBe("unknown: no events");
});

// "unknown: no events" and rates of minutes looked like errors in the first three days.
test("a window of a burn-rate alert that is longer than the data says so", () => {
  const [hour, day] = [3_600e3, 86_400e3];
  const burn = (is_burning: boolean | null) =>
    ({
      is_burning,
      long: bracket(0.4, 0.4, 0.4),
      factor: 3,
      severity: "page",
      long_ns: day * 1e6,
    }) as BurnJson;
  expect(describeBurn(burn(null), 2.5 * hour)).toBe("window not full yet: 2 h 30 min of 1 d");
  expect(describeBurn(burn(false), 60e3)).toBe(
    "within the budget; window not full yet: 1 min of 1 d",
  );
  expect(describeBurn(burn(true), hour)).toBe(
    "above the limit (page); window not full yet: 1 h of 1 d",
  );
  expect(describeBurn(burn(false), day)).toBe("within the budget");
});

test("the first events of a report are after the point before", () => {
  const point = (time: number, total: number) => ({ time_ns: time * 1e6, total }) as SloPointJson;
  const report = (points: SloPointJson[]) => ({ from_ns: 1e6, points }) as SloReportJson;
  expect(firstEvents(report([point(10, 0), point(20, 0), point(30, 4)]))).toBe(20);
  expect(firstEvents(report([point(10, 2)]))).toBe(1);
  expect(firstEvents(report([point(10, 0)]))).toBeNull();
});
