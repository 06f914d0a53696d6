import { expect, test } from "vitest";

import { toCsv, toSvg, type ChartDrawing } from "../src/lib/chartDrawing";
import { curlCommand } from "../src/lib/curl";

const line = { colour: "--line-1", dash: [12, 4] };
const CHART: ChartDrawing = {
  title: 'p99 of <a> & "b"',
  lines: [
    { ...line, name: '{host="a"}', points: [0.5, null, 1, 2] },
    { ...line, name: "max", points: [2, 2, 2, 2], isUnlisted: true },
  ],
  positions: [0, 60e3, 120e3, 180e3],
  x: [0, 180e3],
  y: [0, 2],
  xTicks: [{ at: 60e3, text: "00:01" }],
  yTicks: [{ at: 1, text: "1 s" }],
  threshold: { at: 1.5, text: "1.5 s" },
  colour: (name) => name,
};

test("a chart as CSV has its times, numbers, unit, and empty fields for gaps", () => {
  expect(toCsv(CHART, "s")).toBe(
    'time,"{host=""a""} (s)",max (s)\r\n' +
      "1970-01-01T00:00:00.000Z,0.5,2\r\n" +
      "1970-01-01T00:01:00.000Z,,2\r\n" +
      "1970-01-01T00:02:00.000Z,1,2\r\n" +
      "1970-01-01T00:03:00.000Z,2,2\r\n",
  );
});

test("a chart as SVG has its title, legend, ticks, threshold, and gaps", () => {
  const svg = toSvg(CHART);
  expect(svg).toContain("p99 of &#60;a&#62; &#38; &#34;b&#34;");
  for (const text of ["{host=&#34;a&#34;}", "00:01", "1 s", "1.5 s"])
    expect(svg).toContain(`>${text}</text>`);
  // The line has two parts, the maximum one, and the legend names the line alone.
  const of = (colour: string) => svg.match(new RegExp(`stroke="${colour}"`, "g"))?.length;
  expect(of("--line-1")).toBe(4);
  expect(of("--alert")).toBe(1);
  expect(svg).not.toContain(">max</text>");
  // From the bottom of the plot, at 444, 2 s are 400 pixels.
  expect(svg).toContain('points="670,244 960,44"');
});

test("curl gets quotes of a query, and no token", () => {
  const parameters = { query: "sum(x{a='b'})", from: "-1h" };
  expect(curlCommand("http://host:7717/topdeck/", "/v1/query", parameters, true)).toBe(
    "curl -sG 'http://host:7717/topdeck/v1/query' \\\n" +
      '  -H "Authorization: Bearer $TOPDECK_TOKEN" \\\n' +
      "  --data-urlencode 'query=sum(x{a='\\''b'\\''})' \\\n" +
      "  --data-urlencode 'from=-1h'",
  );
});
