import { expect, test } from "vitest";

import { formatRate, SenderRates, sortTargets, type TargetJson } from "../src/lib/sources";

test("the rate of a sender is that between two readings, and silence is counted", () => {
  const rates = new SenderRates();
  const totals = (a: number) => new Map([["a", a]]);
  expect(rates.update(0, totals(100)).get("a")).toEqual({ rate: null, lastGrowth: null });
  expect(rates.update(10e3, totals(350)).get("a")).toEqual({ rate: 25, lastGrowth: 10e3 });
  const silent = rates.update(20e3, totals(350)).get("a")!;
  expect(silent).toEqual({ rate: 0, lastGrowth: 10e3 });
  expect(rates.silence(silent, 45e3)).toBe(35e3);
  // The server was started again.
  expect(rates.update(30e3, totals(40)).get("a")).toEqual({ rate: 4, lastGrowth: 30e3 });
});

test("a sender that appears while the page is open has just sent", () => {
  const rates = new SenderRates();
  rates.update(0, new Map([["a", 1]]));
  const both = rates.update(
    10e3,
    new Map([
      ["a", 1],
      ["b", 5],
    ]),
  );
  expect(both.get("b")).toEqual({ rate: null, lastGrowth: 10e3 });
  // Nothing since the page was opened.
  expect(rates.silence(both.get("a")!, 10e3)).toBe(10e3);
});

test.each([
  [null, "…"],
  [0, "0"],
  [0.0333, "0.033"],
  [1234.5, "1,235"],
])("a rate of %s is %s", (rate, expected) => expect(formatRate(rate)).toBe(expected));

test("targets that are down come first", () => {
  const target = (name: string, state: TargetJson["state"]) => ({ name, state }) as TargetJson;
  const all = [target("b", "up"), target("c", "down"), target("a", "up"), target("d", "unknown")];
  expect(sortTargets(all).map((one) => one.name)).toEqual(["c", "d", "a", "b"]);
});
