#!/usr/bin/env python3
"""Cost of own rules: CPU time and memory of a server that evaluates them.

    bench/scripts/rules.py [--rules N] [--streams N] [--rounds N] [--interval S] BINARY

A server without other sources gets a histogram row for each of RULES x STREAMS series every
INTERVAL seconds, over HTTP. Each rule selects the series of its own label and has two criteria:
p99, and requests above a threshold. Rules are evaluated on arrival and on schedule.

Printed for each round: CPU of the thread that evaluates (`alerts`) and of the one that reads
arrivals (`alerts-arrivals`) as a share of one core, that of the whole process, and its memory. The
last lines say how long evaluations took and how many were missed, from `/metrics`. Only Python's
standard library is required.
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request

from server import Server

# Rows per request.
CHUNK_ROWS = 20_000
LINE = re.compile(r'(\{"metric":")[^"]*(","labels":\{).*?\},"start_ns":\d+,"end_ns":\d+,(.*)')
SETTINGS = """[alerts]
rule_files = ["rules.toml"]
"""
RULE = """[[rule]]
name = "rule-{0}"
select = 'latency{{rule="{0}"}}'
window = "1min"
[[rule.criteria]]
severity = 1
quantile = 0.99
above = "1h"
[[rule.criteria]]
severity = 3
count_above = "1h"
at_least = 1
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rules", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=18)
    parser.add_argument("--interval", type=float, default=10)
    parser.add_argument("binary", type=os.path.abspath)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as dir:
        row = histogram_row(options, dir)
        with open(f"{dir}/rules.toml", "w") as rules:
            rules.write("".join(RULE.format(number) for number in range(options.rules)))
        with Server(options.binary, dir, SETTINGS) as server:
            measure(options, server, row)


def histogram_row(options, dir):
    """Start and end of a line with one histogram of the generator."""
    pattern = f"{dir}/pattern.frames"
    size = ["--series", "1", "--minutes", "1"]
    subprocess.run([options.binary, "gen", "http", *size, "--out", pattern], check=True)
    with open(pattern) as lines:
        return LINE.match(next(lines)).groups()


def send(options, url, row, start_ns):
    """One row of each series that ends now."""
    metric, labels, rest = row
    times = f'"start_ns":{start_ns},"end_ns":{time.time_ns()},'
    lines = []
    for number in range(options.rules):
        for stream in range(options.streams):
            own = f'"rule":"{number}","stream":"{stream}"}},'
            lines.append(f"{metric}latency{labels}{own}{times}{rest}")
    for at in range(0, len(lines), CHUNK_ROWS):
        body = ("\n".join(lines[at : at + CHUNK_ROWS]) + "\n").encode()
        request = urllib.request.Request(f"{url}/v1/import?format=frames", data=body)
        urllib.request.urlopen(request).close()


def measure(options, server, row):
    pid, url = server.process.pid, server.url
    shares = []
    next_s = time.time()
    start_ns = time.time_ns() - int(options.interval * 1e9)
    before, before_s = cpu_ms(pid), time.time()
    for number in range(options.rounds):
        sent_ns = time.time_ns()
        send(options, url, row, start_ns)
        start_ns, next_s = sent_ns, next_s + options.interval
        time.sleep(max(0, next_s - time.time()))
        now, now_s = cpu_ms(pid), time.time()
        elapsed_ms = (now_s - before_s) * 1e3
        share = {name: (now[name] - before.get(name, 0)) / elapsed_ms for name in now}
        before, before_s = now, now_s
        # Windows are not full in the first minute, and the index of series is built.
        if number * options.interval >= 60:
            shares.append(share["alerts"] + share["alerts-arrivals"])
        print(
            f"round {number}: alerts {share['alerts']:.1%}, "
            f"arrivals {share['alerts-arrivals']:.1%}, all threads {share['all']:.1%}, "
            f"{server.resident() / 2**20:.0f} MiB"
        )
    if shares:
        worst = max(shares)
        print(f"evaluation: {statistics.median(shares):.1%} of a core, at most {worst:.1%}")
    with urllib.request.urlopen(f"{url}/metrics") as response:
        for line in response.read().decode().splitlines():
            if line.startswith("topdeck_rule_"):
                print(line)


def cpu_ms(pid):
    """Run time by the names of threads, and of all threads."""
    total = {"all": 0, "alerts": 0, "alerts-arrivals": 0}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as schedstat:
            run_ms = int(schedstat.read().split()[0]) / 1e6
        with open(f"/proc/{pid}/task/{thread}/comm") as comm:
            name = comm.read().strip()
        total["all"] += run_ms
        if name in total:
            total[name] += run_ms
    return total


if __name__ == "__main__":
    main()
