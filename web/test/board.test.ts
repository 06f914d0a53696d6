import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

import { checked, named, ofHost, told } from "../src/lib/board";

test("what is no panel is left out, what is one of a later topdeck is kept", () => {
  expect(checked(null)).toEqual({ schema: 1, title: "", panels: [] });
  const later = { text: "y", language: "sql", rows: 3 };
  const found = checked({
    title: "a",
    tags: ["b"],
    panels: [{ text: "x", language: "metric", height: 9 }, later, 7, [], null],
  });
  expect(found.panels).toEqual([
    { title: "x", text: "x", language: "metric", height: 9 },
    { foreign: later },
  ]);
  expect(told(found)).toEqual({
    schema: 1,
    title: "a",
    tags: ["b"],
    panels: [{ title: "x", text: "x", language: "metric", height: 9 }, later],
  });
});

test("a board of another meaning is not taken for one of ours", () => {
  expect(() => checked({ schema: 2, panels: [] })).toThrow(/later topdeck/);
  expect(checked([]).panels).toEqual([]);
  expect(checked({ title: 7, panels: "x" })).toEqual({ schema: 1, title: "", panels: [] });
});

test.each([
  ["The shop, live!", "the-shop-live"],
  ["***", "board"],
  ["x".repeat(80), "x".repeat(64)],
])("%s is named %s", (title, expected) => expect(named(title)).toBe(expected));

test("a host's board is of that host alone", () => {
  const board = ofHost('a"b');
  expect(
    board.panels.every((panel) => "text" in panel && panel.text.includes('host="a\\"b"')),
  ).toBe(true);
  expect(checked(JSON.parse(JSON.stringify(board)))).toEqual(board);
});

test("the page of the format is what is read", () => {
  const page = readFileSync(new URL("../../docs/formats/board.md", import.meta.url), "utf8");
  const example: unknown = JSON.parse(/```json\n(.*?)```/s.exec(page)![1]!);
  expect(checked(example)).toEqual(example);
  const keys = [...page.matchAll(/^\| `([^`]+)` \|/gm)].map((found) => found[1]);
  expect(keys).toEqual([
    "schema",
    "title",
    "panels",
    "panels[].language",
    "panels[].text",
    "panels[].title",
  ]);
});
