#!/usr/bin/env python3
"""Cost of `/v1/overview` over HTTP: CPU time of the server and bytes of the response.

    bench/scripts/overview.py [--services N] [--rounds N] BINARY

Fills a store in a temporary directory with a histogram per minute for each service (`topdeck gen
http`, shifted to now): since midnight (UTC), and the same hour of the seven days before, which are
all data that an overview reads. Then a server without other sources answers:

1. once with a budget until every row is complete;
2. ROUNDS times in succession;
3. six times, 10 s apart, as the page asks.

CPU time is that of the process (its CPU clock); bytes are those of the body with gzip. Only
Python's standard library is required.
"""

import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request

from server import Server

MINUTE_NS = 60_000_000_000
DAY_NS = 1440 * MINUTE_NS
PATTERN_MINUTES = 60
# The data goes on while the overview is measured.
FUTURE_MINUTES = 45
LINE = re.compile(r'(\{"metric":"[^"]*","labels":\{)(.*?\},)"start_ns":(\d+),"end_ns":\d+,(.*)')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("binary", type=os.path.abspath)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as dir:
        fill(options, dir)
        with Server(options.binary, dir) as server:
            measure(options, server)


def fill(options, dir):
    pattern = f"{dir}/pattern.frames"
    size = ["--series", str(options.services), "--minutes", str(PATTERN_MINUTES)]
    subprocess.run([options.binary, "gen", "http", *size, "--out", pattern], check=True)
    services, minutes = {}, {}
    with open(pattern) as lines:
        for line in lines:
            head, labels, start, rest = LINE.match(line).groups()
            service = services.setdefault(labels, f"service-{len(services):04}")
            row = (f'{head}"service":"{service}",{labels}', rest)
            minutes.setdefault(int(start), []).append(row)
    minutes = [minutes[start] for start in sorted(minutes)]
    command = [options.binary, "import", "--create", f"{dir}/data/store", "--format", "frames"]
    environment = {**os.environ, "XDG_STATE_HOME": f"{dir}/state"}
    importer = subprocess.Popen([*command, "-"], stdin=subprocess.PIPE, env=environment, text=True)
    for number, start in enumerate(starts()):
        times = f'"start_ns":{start},"end_ns":{start + MINUTE_NS},'
        rows = minutes[number % PATTERN_MINUTES]
        importer.stdin.write("".join(f"{head}{times}{rest}\n" for head, rest in rows))
    importer.stdin.close()
    assert importer.wait() == 0


def starts():
    """Starts of the minutes: the last hour of each of seven days, then today."""
    now = time.time_ns() // MINUTE_NS * MINUTE_NS
    for day in range(7, 0, -1):
        end = now - day * DAY_NS
        yield from range(end - PATTERN_MINUTES * MINUTE_NS, end, MINUTE_NS)
    yield from range(now // DAY_NS * DAY_NS, now + FUTURE_MINUTES * MINUTE_NS, MINUTE_NS)


def measure(options, server):
    def ask(query=""):
        request = urllib.request.Request(f"{server.url}/v1/overview{query}")
        request.add_header("Accept-Encoding", "gzip")
        before = server.cpu()
        with urllib.request.urlopen(request) as response:
            body = response.read()
        cost_ms = (server.cpu() - before) * 1e3
        return cost_ms, len(body), json.loads(gzip.decompress(body))

    incomplete, total = 1, 0
    while incomplete > 0:
        cost, size, answer = ask("?budget=60s")
        incomplete, total = answer["incomplete"], total + cost
    print(f"{answer['total']} rows complete, CPU {total:.0f} ms, {size} bytes")
    for query in ["", "?limit=100", "?limit=1000"]:
        show(f"in succession {query}", [ask(query) for _ in range(options.rounds)])
    later = []
    for _ in range(6):
        time.sleep(10)
        later.append(ask())
    show("every 10 s", later)


def show(title, answers):
    costs = [cost for cost, _, _ in answers]
    size = max(size for _, size, _ in answers)
    spread = f"{min(costs):.1f} to {max(costs):.1f}"
    print(f"{title}: CPU {statistics.median(costs):.1f} ms ({spread}), {size} bytes")


if __name__ == "__main__":
    main()
