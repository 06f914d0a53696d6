import { expect, test } from "vitest";

import { maintenanceRequest, type MaintenanceDraft } from "../src/lib/maintenance";
import { describeInterval } from "../src/lib/timeInterval";

const DRAFT: MaintenanceDraft = {
  matchers: 'host="db1"\n',
  severity: 1,
  isRecurring: false,
  start: "2026-11-26T20:00",
  end: "2026-11-26T22:30",
  days: [],
  from: "22:00",
  to: "02:00",
  author: " ann ",
  comment: "upgrade",
};
const request = (changes: Partial<MaintenanceDraft>) =>
  maintenanceRequest({ ...DRAFT, ...changes }, "Europe/Berlin");

test("a single window has a start and an end in UTC", () => {
  const iso = (text: string) => new Date(text).toISOString();
  expect(request({})).toEqual({
    matchers: ['host="db1"'],
    author: "ann",
    comment: "upgrade",
    starts_at: iso(DRAFT.start),
    ends_at: iso(DRAFT.end),
  });
  expect(request({ end: DRAFT.start })).toBe("the end is not after the start");
  expect(request({ end: "" })).toBe("both times are needed");
});

test("a severity leaves out what is worse, and alerts without the label have severity 2", () => {
  const matchers = (severity: number) => {
    const made = request({ matchers: "", severity });
    return typeof made === "string" ? made : made.matchers[0];
  };
  expect(matchers(1)).toBe("add a matcher, or choose a severity");
  expect(matchers(2)).toBe('severity!~"1|critical|page"');
  expect(matchers(3)).toBe('severity!~"1|critical|page|2|error|high|"');
  expect(matchers(4)).toMatch(/\|3\|warning\|warn"$/);
});

test("a window over midnight is an interval of each day", () => {
  const intervals = (changes: Partial<MaintenanceDraft>) => {
    const made = request({ isRecurring: true, ...changes });
    return typeof made === "string" ? [made] : made.time_intervals!.map(describeInterval);
  };
  expect(intervals({})).toEqual([
    "each day 22:00 to 24:00, Europe/Berlin",
    "each day 00:00 to 02:00, Europe/Berlin",
  ]);
  expect(intervals({ days: ["saturday", "sunday"] })).toEqual([
    "saturday, sunday 22:00 to 24:00, Europe/Berlin",
    "sunday, monday 00:00 to 02:00, Europe/Berlin",
  ]);
  expect(intervals({ from: "02:00", to: "04:00", days: ["sunday"] })).toEqual([
    "sunday 02:00 to 04:00, Europe/Berlin",
  ]);
  expect(intervals({ to: "00:00" })).toEqual(["each day 22:00 to 24:00, Europe/Berlin"]);
  expect(intervals({ to: "" })).toEqual(["both times of day are needed"]);
});

test("intervals of other clients are described", () => {
  expect(describeInterval({})).toBe("each day, UTC");
  const monthly = { days_of_month: ["-1"], months: ["december"], years: ["2026"] };
  expect(describeInterval(monthly)).toBe("day -1 of the month; month december; 2026, UTC");
});
