import { expect, test } from "vitest";

import { documentTitle } from "../src/lib/documentTitle";

test.each([
  ["Explore", { selector: "latency" }, "latency · Explore · topdeck"],
  ["Explore", { selector: "x", language: "promql", query: "up" }, "up · Explore · topdeck"],
  ["Explore", { selector: "x".repeat(80) }, `${"x".repeat(59)}… · Explore · topdeck`],
  ["Compare", { a: "x", b: "y" }, "x and y · Compare · topdeck"],
  ["Compare", { selector: "x" }, "x · Compare · topdeck"],
  ["Dashboards", { dashboard: "shop", selector: "x" }, "shop · Dashboards · topdeck"],
  ["Status", { selector: "x" }, "Status · topdeck"],
])("tabs of %s %j are told apart: %s", (title, settings, expected) => {
  expect(documentTitle({ view: "", settings }, title)).toBe(expected);
});

test("a view with a subject of its own has it in the tab", () => {
  const title = documentTitle({ view: "alerts", settings: {} }, "Alerts", "2 firing");
  expect(title).toBe("2 firing · Alerts · topdeck");
});
