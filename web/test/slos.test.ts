import { expect, test } from "vitest";

import {
  describeBudget,
  describeIndicator,
  formatAttained,
  formatBounds,
  formatObjective,
  formatRemaining,
  nearestThreshold,
  parseObjective,
  spentFirst,
  verdict,
  type SloJson,
} from "../src/lib/slos";

const bracket = (lower: number, estimate: number, upper: number) => ({ lower, estimate, upper });

test("budgets that are spent come first, the least left before the others", () => {
  const slo = (name: string, state: string, estimate: number | null) => {
    const remaining = estimate === null ? null : { lower: estimate, estimate, upper: estimate };
    return { name, state, budget: { remaining } } as unknown as SloJson;
  };
  const slos = [
    slo("good", "left", 0.9),
    slo("wide", "uncertain", 0.1),
    slo("worse", "spent", -0.1),
    slo("bad", "spent", -1.5),
    slo("silent", "unknown", null),
  ];
  expect(spentFirst(slos).map(describeBudget)).toEqual(["bad −150 % left", "worse −10 % left"]);
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
  expect(formatBounds(null, formatRemaining)).toBe("unknown");
  expect(formatBounds(bracket(0.7, 0.72, 0.75), formatRemaining)).toBe("72 % (70 % to 75 %)");
  expect(formatAttained(bracket(0.999, 0.999, 0.999))).toBe("99.900 %");
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
