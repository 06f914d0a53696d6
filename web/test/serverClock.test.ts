import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { serverClock } from "../src/lib/serverClock.svelte";

// Time is frozen, so that two readings of the clock are equal.
beforeAll(() => void vi.useFakeTimers());
afterAll(() => void vi.useRealTimers());

const off = () => Math.round((Date.now() - serverClock.now()) / 1e3);
const date = (ms: number) => new Date(ms).toUTCString();

test("a correct clock and a slow response change nothing", () => {
  const at = Date.parse("2026-11-22T05:00:00.900Z");
  serverClock.synchronize(date(at), at, at + 50);
  serverClock.synchronize(date(at), at - 90_000, at + 50);
  serverClock.synchronize(date(at), at, at + 90_000);
  serverClock.synchronize("no date", at, at);
  serverClock.synchronize(null, at, at);
  expect(off()).toBe(0);
});

test("where the clocks differ, the server's is used", () => {
  const at = Date.parse("2026-11-22T05:00:00.900Z");
  serverClock.synchronize(date(at), at + 3_600e3, at + 3_600e3 + 50);
  expect(Math.abs(off() - 3_600)).toBeLessThanOrEqual(2);
  serverClock.synchronize(date(at), at - 7_200e3, at - 7_200e3 + 50);
  expect(Math.abs(off() + 7_200)).toBeLessThanOrEqual(2);
});
