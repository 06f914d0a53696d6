import { expect, test } from "vitest";

import { parseVariables, substitute, variableOf } from "../src/lib/dashboardVariables";

test.each([
  ['latency{host="$host"}', "web-1", 'latency{host="web-1"}'],
  ['latency{host=~"${host}",a="b"}', "web-1", 'latency{host="web-1",a="b"}'],
  ['latency{host="$host"}', "", 'latency{host=~".*"}'],
  ['latency{host="$host"}', 'a"b\\', 'latency{host="a\\"b\\\\"}'],
  ["and(__name:latency,host:$host)", "web-1", "and(__name:latency,host:web-1)"],
  ["and(__name:latency,host:$host)", "", "and(__name:latency,host:*)"],
  ['latency{host="$hosts"}', "web-1", 'latency{host="$hosts"}'],
  ['x{host="$&$host"}', "$1", 'x{host="$&$1"}'],
])("%s with host %s is %s", (text, host, expected) => {
  expect(substitute(text, { host })).toBe(expected);
});

test("a longer name is not taken for a shorter one", () => {
  const values = { host: "a", host_name: "b" };
  expect(substitute('x{h="$host",n="$host_name"}', values)).toBe('x{h="a",n="b"}');
});

test("variables of a file are read, and what is none is dropped", () => {
  const host = { name: "host", label: "host.name" };
  expect(parseVariables([host, { name: "a b", label: "x" }, null, { name: "n" }, host])).toEqual([
    host,
  ]);
  expect(parseVariables("host")).toEqual([]);
  expect(variableOf("service.name")).toEqual({ name: "service_name", label: "service.name" });
  expect(variableOf("2nd")).toEqual({ name: "_2nd", label: "2nd" });
});
