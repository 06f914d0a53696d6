import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { clock } from "../src/lib/now.svelte";

// Time stands still: a millisecond that passes between the two readings below would be a difference.
beforeAll(() => void vi.useFakeTimers());
afterAll(() => void vi.useRealTimers());

const off = () => Math.round((Date.now() - clock.now()) / 1e3);
const date = (ms: number) => new Date(ms).toUTCString();

test("a clock that is right, or an answer that took long, changes nothing", () => {
  const at = Date.parse("2026-11-22T05:00:00.900Z");
  clock.heard(date(at), at, at + 50);
  clock.heard(date(at), at - 90_000, at + 50);
  clock.heard(date(at), at, at + 90_000);
  clock.heard("no date", at, at);
  clock.heard(null, at, at);
  expect(off()).toBe(0);
});

test("where the clocks differ, that of the server counts", () => {
  const at = Date.parse("2026-11-22T05:00:00.900Z");
  clock.heard(date(at), at + 3_600e3, at + 3_600e3 + 50);
  expect(Math.abs(off() - 3_600)).toBeLessThanOrEqual(2);
  clock.heard(date(at), at - 7_200e3, at - 7_200e3 + 50);
  expect(Math.abs(off() + 7_200)).toBeLessThanOrEqual(2);
});
