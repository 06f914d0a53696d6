import { expect, test } from "vitest";

import { describeRejection } from "../src/lib/acknowledgement";
import { ApiError } from "../src/lib/api";
import { describeSilence, matcherLines, readMatchers, toSilence } from "../src/lib/silences";

const NOW = Date.UTC(2026, 10, 26, 12);
const JSON_SILENCE: Parameters<typeof toSilence>[0] = {
  id: "0b2f3c1e",
  state: "active",
  matchers: ['host="a"'],
  starts_ns: (NOW - 60e3) * 1e6,
  ends_ns: (NOW + 90e3) * 1e6,
  time_intervals: [],
  author: "ann",
  comment: "",
};

test("matchers of labels: the name first, with the escapes that the server reads", () => {
  const labels = { "a.b": "x", host: 'a"b\\c\nd\te', alertname: "Slow" };
  expect(matcherLines(labels)).toBe('alertname="Slow"\n"a.b"="x"\nhost="a\\"b\\\\c\\nd\te"');
  expect(matcherLines({})).toBe("");
});

test("matchers are read by lines", () => {
  expect(readMatchers(' a="b" \n\n\tc=~"d,e"\n')).toEqual(['a="b"', 'c=~"d,e"']);
  expect(readMatchers("  \n")).toEqual([]);
});

test("a silence is described by author, end and comment", () => {
  const describe = (changes: object) =>
    describeSilence(toSilence({ ...JSON_SILENCE, ...changes }), NOW);
  expect(describe({})).toMatch(/^by ann until 2026-11-2\d \d\d:\d\d:30 \(2 min left\)$/);
  expect(describe({ comment: "moved" })).toMatch(/left\): moved$/);
  expect(describe({ ends_ns: null, time_intervals: [{}] })).toBe("by ann, each day, UTC");
  expect(describe({ state: "pending", starts_ns: (NOW + 60e3) * 1e6, author: "" })).toMatch(
    /^by somebody from 2026-.* until 2026-/,
  );
  expect(describe({ ends_ns: (NOW + 60e3 * 60 * 4 + 999) * 1e6 })).toMatch(/\(4 h left\)$/);
  expect(describe({ ends_ns: (NOW + 5e3) * 1e6 })).toMatch(/\(1 min left\)$/);
  expect(describe({ ends_ns: (NOW - 1) * 1e6 })).not.toContain("left");
});

test("a token without the scope is told in words, other rejections are the server's", () => {
  const scope = new ApiError(403, "token wall lacks scope alerts");
  expect(describeRejection(scope)).toMatch(/^this page's token lacks the scope alerts; open/);
  const host = new ApiError(403, "host is not allowed");
  expect(describeRejection(host)).toBe("host is not allowed");
  expect(describeRejection(new ApiError(400, "scope: unknown key"))).toBe("scope: unknown key");
  expect(describeRejection("gone")).toBe("gone");
});
