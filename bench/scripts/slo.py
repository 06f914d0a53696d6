#!/usr/bin/env python3
"""Time of a report of an SLO whose threshold changes: the past is computed anew.

    bench/scripts/slo.py [--days N] [--series N] [--row S] [--rounds N] [--pause S] BINARY

A server gets a histogram row of each of SERIES series every ROW seconds of the last DAYS days, over
HTTP. Each round asks for the report of the last 90 days with another threshold (`/v1/slo`), and
prints the wall time from the request to the last byte of the answer, and the number of events of
these days. Rounds are PAUSE seconds apart, because the store builds its rollups after the data
arrived: the first rounds are before, the last ones after. The last line has the median and the
maximum of the second half. Only Python's standard library is required.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
import urllib.request

from rules import histogram_row
from server import Server

DAY_S = 86_400
REPORT_DAYS = 90
SETTINGS = """[[slo]]
name = "checkout"
selector = "latency"
threshold = "250ms"
objective = "99%"
period = "30d"
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=120)
    parser.add_argument("--series", type=int, default=20)
    parser.add_argument("--row", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--pause", type=float, default=5)
    parser.add_argument("binary", type=os.path.abspath)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as dir:
        row = histogram_row(options, dir)
        with Server(options.binary, dir, SETTINGS) as server:
            fill(options, server.url, row)
            measure(options, server.url)


def fill(options, url, row):
    """Rows of all days, a request for each day, oldest first."""
    metric, labels, rest = row
    end_s = int(time.time()) // options.row * options.row
    for day in reversed(range(options.days)):
        lines = []
        for at_s in range(end_s - (day + 1) * DAY_S, end_s - day * DAY_S, options.row):
            start_ns, end_ns = at_s * 10**9, (at_s + options.row) * 10**9
            times = f'"start_ns":{start_ns},"end_ns":{end_ns},'
            for series in range(options.series):
                lines.append(f'{metric}latency{labels}"series":"{series}"}},{times}{rest}')
        body = ("\n".join(lines) + "\n").encode()
        request = urllib.request.Request(f"{url}/v1/import?format=frames", data=body)
        urllib.request.urlopen(request).close()


def measure(options, url):
    times = []
    for number in range(options.rounds):
        # Another threshold each time, so that no answer is one of before.
        threshold = f"{100 + number}ms"
        began = time.monotonic()
        path = f"/v1/slo?name=checkout&from=-{REPORT_DAYS}d&threshold={threshold}"
        with urllib.request.urlopen(url + path) as response:
            report = json.loads(response.read())
        times.append(time.monotonic() - began)
        events = sum(day["total"] or 0 for day in report["days"])
        print(f"round {number}: {times[-1]:.3f} s, {events:,.0f} events, threshold {threshold}")
        time.sleep(options.pause)
    settled = times[len(times) // 2 :]
    print(f"report: median {statistics.median(settled):.3f} s, at most {max(settled):.3f} s")


if __name__ == "__main__":
    main()
