import { expect, test } from "vitest";

import { formatDateTime } from "../src/lib/time";
import { describeMarks, marksWithin, type TimeMark } from "../src/lib/timeMarks.svelte";

function mark(start: number, text = `mark ${start}`): TimeMark {
  return { kind: "note", text, start, end: start + 5 };
}

test("marks of a chart begin in its range", () => {
  const marks = [9, 10, 15, 20, 21].map((start) => mark(start));
  expect(marksWithin(marks, [10, 20]).map(({ start }) => start)).toEqual([10, 15, 20]);
});

test("marks are told with their times, the latest eight one by one", () => {
  expect(describeMarks([], [0, 100])).toBe("");
  expect(describeMarks([mark(200)], [0, 100])).toBe("");
  const deploy = mark(50, "deploy 1.5");
  expect(describeMarks([deploy], [0, 100])).toBe(`${formatDateTime(50)}: deploy 1.5`);
  const many = Array.from({ length: 10 }, (_, at) => mark(at));
  const texts = describeMarks(many, [0, 100]).split("; ");
  expect(texts).toHaveLength(9);
  expect(texts[0]).toBe(`${formatDateTime(2)}: mark 2`);
  expect(texts[8]).toBe("2 earlier marks");
});
