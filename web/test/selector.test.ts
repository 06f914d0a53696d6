import { afterEach, expect, test, vi } from "vitest";

import { complete, MetricCatalog, type Suggestion } from "../src/lib/complete";
import { formatLabels } from "../src/lib/query";
import { addMatcher, metricSelector } from "../src/lib/selector";

test.each([
  ["latency", "latency"],
  ["http.server.duration", "http.server.duration"],
  ["foo bar", '{"foo bar"}'],
  ["a*b", '{"a*b"}'],
  ["and(x)", '{"and(x)"}'],
  ['q"\\{x}', '{"q\\"\\\\{x}"}'],
])("the selector of metric %s is %s", (name, expected) =>
  expect(metricSelector(name)).toBe(expected),
);

test.each([
  ["a", "x", "y", 'a{x="y"}'],
  ["a{}", "x", "y", 'a{x="y"}'],
  ['a{b="c"}', "x", "y", 'a{x="y",b="c"}'],
  ['{"a b"}', "x", "y", '{x="y","a b"}'],
  // It has the matcher already.
  ['a{b="c",x="y"}', "x", "y", 'a{b="c",x="y"}'],
  ['a{ax="y"}', "x", "y", 'a{x="y",ax="y"}'],
  ["a{ }", "x", "US$$ $& $1", 'a{x="US$$ $& $1"}'],
  ["a", "x", 'l\n"\\', 'a{x="l\\n\\"\\\\"}'],
  ["and(__name:a)", "x", "b*", 'and(and(__name:a),x:[exact]"b*")'],
])("%s, but only %s %s", (selector, label, value, expected) =>
  expect(addMatcher(selector, label, value)).toBe(expected),
);

test("labels are formatted as in a selector", () => {
  expect(formatLabels({ __name__: "a", b: 'c"d' })).toBe('a{b="c\\"d"}');
});

const one = (name: string, kind = "delta-histogram", unit: string | null = null) => ({
  name,
  kind,
  unit,
  series: 1,
});

/** Suggestions; the first list of names is `names`, later responses are `json`. */
async function suggest(
  text: string,
  caret: number,
  json: object,
  names = [one("latency")],
  isTruncated = false,
): Promise<Suggestion[]> {
  vi.stubGlobal("fetch", async (address: string) =>
    Response.json(
      address.includes("limit=10000") ? { total: 9, truncated: isTruncated, names } : json,
    ),
  );
  const { signal } = new AbortController();
  return complete({
    text,
    caret,
    syntax: "selector",
    kinds: ["delta-histogram"],
    catalog: new MetricCatalog(),
    signal,
  });
}

afterEach(() => vi.unstubAllGlobals());

test.each([
  ['a{h="', 5, "web-1", 'a{h="web-1"}'],
  ['a{h="web-2"}', 9, "web-1", 'a{h="web-1"}'],
  ['a{h="a b/c",x="1"}', 5, "d", 'a{h="d",x="1"}'],
  ['a{h="', 5, "two\nlines", 'a{h="two\\nlines"}'],
])(
  "a suggested value replaces the one at the caret: %s at %d",
  async (text, caret, value, expected) => {
    const found = await suggest(text, caret, { values: [{ value, series: 1 }] });
    expect(found[0]!.text).toBe(expected);
  },
);

test("a truncated list of names is searched on the server", async () => {
  const json = { names: [one("rarely_used"), one("rarely_used", "gauge")] };
  const found = await suggest("rare", 4, json, [one("latency")], true);
  expect(found.map((one) => one.name)).toEqual(["rarely_used"]);
});

test("a metric with two units is suggested once, a special name is quoted", async () => {
  const found = await suggest("lat", 3, {}, [
    one("latency", "delta-histogram", "ms"),
    one("latency", "delta-histogram", "s"),
    one("a lat"),
  ]);
  expect(found.map((one) => one.text)).toEqual(["latency", '{"a lat"}']);
});
