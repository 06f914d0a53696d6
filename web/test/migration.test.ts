import { expect, test } from "vitest";

import host1 from "../../testdata/dashboards/host-1.json";
import host2 from "../../testdata/dashboards/host-2.json";
import topdeck1 from "../../testdata/dashboards/topdeck-1.json";
import topdeck2 from "../../testdata/dashboards/topdeck-2.json";
import { read } from "../src/lib/link";
import { migrateQuery } from "../src/lib/migration";

/** The server migrates dashboards by the same rules: both are tested with these. */
const old = [...host1.panels, ...topdeck1.panels];
const migrated = [...host2.panels, ...topdeck2.panels];
const pairs = old
  .map((panel, at) => ({ ...panel, expected: migrated[at]!.text }))
  .filter(({ language }) => language !== "sql");

test("every query of the fixtures is tested", () => expect(pairs).toHaveLength(20));

test.each(pairs)("a query is migrated: $text", ({ text, language, expected }) => {
  expect(migrateQuery(text, language === "promql")).toBe(expected);
  expect(migrateQuery(expected, language === "promql")).toBe(expected);
});

test.each([
  ["", ""],
  ["check_up{", "probe_success{"],
  ['check_up{a="', 'probe_success{a="'],
  ["sum by (why", "sum by (why"],
  ["by (a) ) on", "by (a) ) on"],
  ["{\"check_up\", a='b\\'c'}", "{\"probe_success\", a='b\\'c'}"],
  ['{"topdeck_forward_lag",site="a"}', '{"topdeck_forward_lag_records",remote="a"}'],
  ['{site="a"}', '{site="a"}'],
  ["topdeck_uptime_seconds", "(time() - process_start_time_seconds)"],
  ['topdeck_uptime_seconds {a="b"', 'process_start_time_seconds {a="b"'],
  ["constructor{toString='x'}", "constructor{toString='x'}"],
  ['a{__kind="cumulative-count"}', 'a{__kind="cumulative-counter"}'],
  ['a{__kind=~"histogram|gauge"}', 'a{__kind=~"delta-histogram|gauge"}'],
  ["and(a:b,__kind:cumulative-count)", "and(a:b,__kind:cumulative-counter)"],
  ["and(__kind:histogram,x:y)", "and(__kind:delta-histogram,x:y)"],
  ["and(__kind:*histogram,x:y)", "and(__kind:*histogram,x:y)"],
  ["and(__kind:delta-counter,kind:count)", "and(__kind:delta-counter,kind:count)"],
  ["__kind:counter-", "__kind:cumulative-counter-"],
])("an unfinished or odd query is migrated without loss: %s", (text, expected) =>
  expect(migrateQuery(text, true)).toBe(expected),
);

test("the selector within a string of CAQL is migrated", () =>
  expect(migrateQuery("find('a','and(__kind:count)')", false)).toBe(
    "find('a','and(__kind:delta-counter)')",
  ));

test.each([
  [`check_up{__kind=~"histogram|gauge"}`, `check_up{__kind=~"delta-histogram|gauge"}`],
  ["and(__name:check_up,__kind:counter)", "and(__name:check_up,__kind:cumulative-counter)"],
  ["a{__kind!='delta-counter'}", "a{__kind!='delta-counter'}"],
])("of a current link only the kinds are migrated: %s", (selector, expected) => {
  const link = `#/explore?${new URLSearchParams({ selector, v: "2" })}`;
  expect(read(link).settings).toEqual({ selector: expected });
});
