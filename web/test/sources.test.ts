import { expect, test } from "vitest";

import {
  formatRate,
  isSender,
  SenderRates,
  sortTargets,
  type TargetJson,
} from "../src/lib/sources";

test("the rate of a sender is that between two readings", () => {
  const rates = new SenderRates();
  const totals = (a: number) => new Map([["a", a]]);
  expect(rates.update(0, totals(100)).get("a")).toBe(null);
  expect(rates.update(10e3, totals(350)).get("a")).toBe(25);
  expect(rates.update(20e3, totals(350)).get("a")).toBe(0);
  // The server was started again.
  expect(rates.update(30e3, totals(40)).get("a")).toBe(4);
});

test("a sender that appears while the page is open has no rate yet", () => {
  const rates = new SenderRates();
  rates.update(0, new Map([["a", 1]]));
  const both = rates.update(
    10e3,
    new Map([
      ["a", 1],
      ["b", 5],
    ]),
  );
  expect([...both]).toEqual([
    ["a", 0],
    ["b", null],
  ]);
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

test("an action of a user is no sender that could be absent", () => {
  const names = ["demo", "rename", "retire", "annotations", "import lat.csv", "host"];
  expect(names.filter(isSender)).toEqual(["demo", "import lat.csv", "host"]);
});
