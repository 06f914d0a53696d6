/** Rules for the sources that no compiler checks: line width, and names of types. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "..");
const MAX_WIDTH = 100;
/** A type is a noun that says what the value is: participles, adverbs and questions are not. */
const NO_NOUNS = new RegExp(
  "^(Asked|Gone|Heard|Held|Here|How|Kept|Known|Listed|Seen|Shown|Taken|Told|" +
    "Wanted|Way|What|When|Whose|Why|Written)$",
);
/** One name, one idea: parts of responses and properties of components are local to their file. */
const LOCAL = /^(Props|Labels)$|Json$/;

function sources(dir: string): { name: string; text: string }[] {
  const names = readdirSync(join(ROOT, dir), { recursive: true, encoding: "utf8" });
  return names
    .filter((name) => /\.(ts|svelte|css)$/.test(name))
    .map((name) => ({
      name: `${dir}/${name}`,
      text: readFileSync(join(ROOT, dir, name), "utf8"),
    }));
}

test.each(["src", "browser", "test"])("lines of %s have at most 100 columns", (dir) => {
  const long = sources(dir).flatMap(({ name, text }) =>
    text
      .split("\n")
      .flatMap((line, at) => ([...line].length > MAX_WIDTH ? [`${name}:${at + 1}`] : [])),
  );
  expect(long).toEqual([]);
});

test("a type of src is a noun, and its name is unique", () => {
  const places = new Map<string, string[]>();
  for (const { name, text } of sources("src")) {
    for (const [, type] of text.matchAll(/\b(?:interface|class|type) ([A-Z]\w*)(?= [={<e]|<)/g)) {
      places.set(type!, [...(places.get(type!) ?? []), name]);
    }
  }
  expect(places.size).toBeGreaterThan(50);
  expect([...places.keys()].filter((type) => NO_NOUNS.test(type))).toEqual([]);
  const repeated = [...places].filter(([type, files]) => files.length > 1 && !LOCAL.test(type));
  expect(repeated).toEqual([]);
});
