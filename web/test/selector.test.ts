import { afterEach, expect, test, vi } from "vitest";

import { complete, Known, type Offer } from "../src/lib/complete";
import { named } from "../src/lib/question";
import { narrowed, ofMetric } from "../src/lib/selector";

test.each([
  ["latency", "latency"],
  ["http.server.duration", "http.server.duration"],
  ["foo bar", '{"foo bar"}'],
  ["a*b", '{"a*b"}'],
  ["and(x)", '{"and(x)"}'],
  ['q"\\{x}', '{"q\\"\\\\{x}"}'],
])("the metric %s is picked by %s", (name, expected) => expect(ofMetric(name)).toBe(expected));

test.each([
  ["a", "x", "y", 'a{x="y"}'],
  ["a{}", "x", "y", 'a{x="y"}'],
  ['a{b="c"}', "x", "y", 'a{x="y",b="c"}'],
  ['{"a b"}', "x", "y", '{x="y","a b"}'],
  ["a{ }", "x", "US$$ $& $1", 'a{x="US$$ $& $1"}'],
  ["a", "x", 'l\n"\\', 'a{x="l\\n\\"\\\\"}'],
  ["and(__name:a)", "x", "b*", 'and(and(__name:a),x:[exact]"b*")'],
])("%s, but only %s %s", (selector, label, value, expected) =>
  expect(narrowed(selector, label, value)).toBe(expected),
);

test("labels are told as one would write them", () => {
  expect(named({ __name__: "a", b: 'c"d' })).toBe('a{b="c\\"d"}');
});

const one = (name: string, kind = "histogram", unit: string | null = null) => ({
  name,
  kind,
  unit,
  series: 1,
});

/** What is offered by a page that was told of these names, all or not, and is then answered so. */
async function offers(
  text: string,
  caret: number,
  told: object,
  names = [one("latency")],
  cut = false,
): Promise<Offer[]> {
  vi.stubGlobal("fetch", async (address: string) =>
    Response.json(address.includes("limit=10000") ? { found: 9, cut, names } : told),
  );
  const { signal } = new AbortController();
  return complete({
    text,
    caret,
    language: "selector",
    kinds: ["histogram"],
    known: new Known(),
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
  "a value takes the place of the one that the caret is in: %s at %d",
  async (text, caret, value, expected) => {
    const found = await offers(text, caret, { values: [{ value, series: 1 }] });
    expect(found[0]!.text).toBe(expected);
  },
);

test("of more names than are known here, the server is asked", async () => {
  const told = { names: [one("rarely_used"), one("rarely_used", "gauge")] };
  const asked = await offers("rare", 4, told, [one("latency")], true);
  expect(asked.map((offer) => offer.name)).toEqual(["rarely_used"]);
});

test("what is of two units is offered once, what is oddly named in quotes", async () => {
  const found = await offers("lat", 3, {}, [
    one("latency", "histogram", "ms"),
    one("latency", "histogram", "s"),
    one("a lat"),
  ]);
  expect(found.map((offer) => offer.text)).toEqual(["latency", '{"a lat"}']);
});
