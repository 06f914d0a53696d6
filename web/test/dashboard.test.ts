import { readFileSync } from "node:fs";

import { afterEach, expect, test, vi } from "vitest";

import stored from "../../testdata/dashboards/topdeck-1.json";
import {
  addPanel,
  hostDashboard,
  parseDashboard,
  postgresDashboard,
  slug,
  toJson,
} from "../src/lib/dashboard";

afterEach(() => vi.unstubAllGlobals());

test("a pin is added to what another user saved meanwhile", async () => {
  const panel = (text: string) => ({ title: text, text, language: "metric" as const });
  // The other user saves between our first read and our first write.
  let stored = { schema: 2, title: "Shop", panels: [panel("a")] };
  let tag = 1;
  const written: unknown[] = [];
  vi.stubGlobal("fetch", (_: string, { method, headers, body }: RequestInit) => {
    const respond = (status: number, json: unknown) =>
      Promise.resolve(
        new Response(JSON.stringify(json), { status, headers: { ETag: `"${tag}"` } }),
      );
    if (method === "GET") return respond(200, stored);
    if (written.length === 0) [stored, tag] = [{ ...stored, panels: [panel("b")] }, 2];
    written.push(JSON.parse(String(body)));
    const isCurrent = (headers as Record<string, string>)["If-Match"] === `"${tag}"`;
    return isCurrent ? respond(200, {}) : respond(412, { error: "changed" });
  });
  await addPanel({ name: "shop", title: "Shop" }, panel("c"));
  expect(written).toHaveLength(2);
  expect(written[1]).toEqual({ schema: 2, title: "Shop", panels: [panel("b"), panel("c")] });
});

test("invalid panels are dropped, panels of a later version are preserved", () => {
  expect(parseDashboard(null)).toEqual({ schema: 1, title: "", panels: [] });
  const later = { text: "y", language: "sql", rows: 3 };
  const found = parseDashboard({
    title: "a",
    tags: ["b"],
    panels: [{ text: "x", language: "metric", height: 9 }, later, 7, [], null],
  });
  expect(found.panels).toEqual([
    { title: "x", text: "x", language: "metric", height: 9 },
    { unknown: later },
  ]);
  expect(toJson(found)).toEqual({
    schema: 1,
    title: "a",
    tags: ["b"],
    panels: [{ title: "x", text: "x", language: "metric", height: 9 }, later],
  });
});

test("a dashboard stored by an earlier version is read, and exported unchanged", () => {
  const dashboard = parseDashboard(stored);
  expect(dashboard.panels.filter((one) => "text" in one)).toHaveLength(14);
  expect(toJson(dashboard)).toEqual(stored);
});

test("a panel has one of three sizes, and any other is the normal one", () => {
  const panel = { title: "a", text: "a", language: "metric" };
  const sizes = ["normal", "wide", "large", "huge", 7].map((size) => ({ ...panel, size }));
  const { panels } = parseDashboard({ schema: 2, panels: sizes });
  expect(panels.map((one) => ("size" in one ? one.size : null))).toEqual([
    "normal",
    "wide",
    "large",
    null,
    null,
  ]);
});

test("a dashboard of a later schema is refused", () => {
  expect(() => parseDashboard({ schema: 3, panels: [] })).toThrow(/schema 3 is newer/);
  expect(parseDashboard([]).panels).toEqual([]);
  expect(parseDashboard({ title: 7, panels: "x" })).toEqual({ schema: 1, title: "", panels: [] });
});

test.each([
  ["The shop, live!", "the-shop-live"],
  ["***", "dashboard"],
  ["x".repeat(80), "x".repeat(64)],
])("%s is named %s", (title, expected) => expect(slug(title)).toBe(expected));

test("a host's dashboard queries that host alone", () => {
  const board = hostDashboard('a"b');
  expect(
    board.panels.every((panel) => "text" in panel && panel.text.includes('host="a\\"b"')),
  ).toBe(true);
  expect(parseDashboard(JSON.parse(JSON.stringify(board)))).toEqual(board);
});

test("the dashboard of PostgreSQL has a variable for the server in every panel", () => {
  const board = postgresDashboard();
  expect(board.variables).toEqual([{ name: "instance", label: "instance" }]);
  expect(board.panels.length).toBeGreaterThan(20);
  for (const panel of board.panels) {
    expect("text" in panel && panel.text).toContain('{instance="$instance"}');
  }
  expect(parseDashboard(JSON.parse(JSON.stringify(board)))).toEqual(board);
});

test("docs/formats/dashboard.md has an example that is read as it stands, and every key", () => {
  const page = readFileSync(new URL("../../docs/formats/dashboard.md", import.meta.url), "utf8");
  const example: unknown = JSON.parse(/```json\n(.*?)```/s.exec(page)![1]!);
  expect(parseDashboard(example)).toEqual(example);
  const keys = [...page.matchAll(/^\| `([^`]+)` \|/gm)].map((found) => found[1]);
  expect(keys).toEqual([
    "schema",
    "title",
    "variables",
    "variables[].name",
    "variables[].label",
    "panels",
    "panels[].language",
    "panels[].text",
    "panels[].title",
    "panels[].legend",
    "panels[].unit",
    "panels[].size",
  ]);
});
