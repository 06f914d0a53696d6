import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

import { checked, named, ofHost } from "../src/lib/board";

test("what is no panel is left out", () => {
  expect(checked(null)).toEqual({ schema: 1, title: "", panels: [] });
  const found = checked({ title: "a", panels: [{ text: "x", language: "metric" }, { text: "y", language: "sql" }, 7] });
  expect(found.panels).toEqual([{ title: "x", text: "x", language: "metric" }]);
});

test.each([
  ["The shop, live!", "the-shop-live"],
  ["***", "board"],
  ["x".repeat(80), "x".repeat(64)],
])("%s is named %s", (title, expected) => expect(named(title)).toBe(expected));

test("a host's board is of that host alone", () => {
  const board = ofHost('a"b');
  expect(board.panels.every((panel) => panel.text.includes('host="a\\"b"'))).toBe(true);
  expect(checked(JSON.parse(JSON.stringify(board)))).toEqual(board);
});

test("the page of the format is what is read", () => {
  const page = readFileSync(new URL("../../docs/formats/board.md", import.meta.url), "utf8");
  const example: unknown = JSON.parse(/```json\n(.*?)```/s.exec(page)![1]!);
  expect(checked(example)).toEqual(example);
  const keys = [...page.matchAll(/^\| `([^`]+)` \|/gm)].map((found) => found[1]);
  expect(keys).toEqual(["schema", "title", "panels", "panels[].language", "panels[].text", "panels[].title"]);
});
