#!/usr/bin/env python3
"""Cost of many counters over HTTP: CPU time of ingest and of queries, resident memory.

    bench/scripts/growth.py [--series N] [--equal] [--rounds N] [--recent] [--keep DIR] BINARY...

Sends counters with five labels and four samples each by remote write 1, 2,000 samples per request,
as `bench path` does: all series, then all again 15 seconds later. A counter has increments of its
own, or with --equal those of all others. The first sample is at a midnight (UTC) of the past, so
that a series is in two parts as soon as the server is idle; with --recent, samples are of now and
stay in memory. Then the server is stopped and started again, and queries are asked; with several
binaries, each on the same directory, in turns.

CPU time is that of the process (its CPU clock); numbers are medians of ROUNDS with minimum and
maximum, after one answer that does not count. Sums are compared with what was sent. Only Python's
standard library is required.
"""

import argparse
import json
import os
import random
import statistics
import struct
import sys
import tempfile
import time
import urllib.parse

from protobuf import HEADERS, field, label, varint
from server import Server

ROUTES = 50
SAMPLES = 4
INTERVAL_S = 15
PER_REQUEST = 2_000
# 2026-11-15T00:00:00Z.
START_S = 1_794_700_800
PODS_SELECTED = 10_000


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--series", type=int, default=200_000)
    parser.add_argument("--equal", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--recent", action="store_true")
    parser.add_argument("--keep", help="directory that is kept; ingest is skipped if it has data")
    parser.add_argument("binaries", nargs="+", type=os.path.abspath)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        dir = os.path.abspath(options.keep or temporary)
        os.makedirs(dir, exist_ok=True)
        first = start_of(options, dir)
        increments = increments_of(options)
        queries = queries_of(options, first, increments)
        if not os.path.exists(f"{dir}/data"):
            bodies = bodies_of(options, first, increments)
            ingest(options, dir, bodies, queries)
        costs = {binary: {} for binary in options.binaries}
        for binary in options.binaries:
            with Server(binary, dir) as server:
                ask_all(server, queries, costs[binary], options.rounds)
                resident = server.resident()
            where = "in memory" if options.recent else "in parts"
            resident /= options.series
            print(f"{binary}: after a start, {where}, RSS {resident:.0f} B per series")
            show(costs[binary])


def start_of(options, dir):
    """Time of the first sample, kept in a file."""
    try:
        with open(f"{dir}/start") as held:
            return int(held.read())
    except FileNotFoundError:
        first = START_S
        if options.recent:
            first = int(time.time()) - SAMPLES * INTERVAL_S
        with open(f"{dir}/start", "w") as held:
            held.write(str(first))
        return first


def increments_of(options):
    generator = random.Random(1)
    return [1 if options.equal else generator.randrange(1, 1000) for _ in range(options.series)]


def queries_of(options, first, increments):
    end = first + (SAMPLES - 1) * INTERVAL_S
    # Four samples in a minute, of which the first is as far from its start as from the next one:
    # the increase is extrapolated by 60 / 45.
    rates = sum(increments) / INTERVAL_S
    selected = min(PODS_SELECTED, options.series)
    query = "/api/v1/query?" + urllib.parse.urlencode({"time": end}) + "&query="
    quote = urllib.parse.quote
    return [
        ("count(m)", query + quote("count(m)"), options.series),
        ("sum by (route) (rate(m[1m]))", query + quote("sum by (route) (rate(m[1m]))"), rates),
        ('count(m{pod=~"api-000.*"})', query + quote('count(m{pod=~"api-000.*"})'), selected),
        ("label values", f"/api/v1/label/pod/values?start={first}&end={end}", options.series),
        ("sum(m)", query + quote("sum(m)"), None),
        ("count by (route) (m)", query + quote("count by (route) (m)"), options.series),
    ]


def bodies_of(options, first, increments):
    """Compressed requests."""
    routes = [label("route", f"/route/{number}") for number in range(ROUTES)]
    fixed = label("__name__", "m")
    job = label("job", "shop")
    labels = []
    for at in range(options.series):
        instance = label("instance", f"10.{at // 65536}.{at // 256 % 256}.{at % 256}:9100")
        pod = label("pod", f"api-{at:07}")
        labels.append(fixed + instance + job + pod + routes[at % ROUTES])
    bodies = []
    for sample in range(SAMPLES):
        time_ms = varint((first + sample * INTERVAL_S) * 1000)
        for start in range(0, options.series, PER_REQUEST):
            records = []
            for at in range(start, min(start + PER_REQUEST, options.series)):
                value = 100_000 + at % 1000 + sample * increments[at]
                if options.equal:
                    value = 1_000 + sample * INTERVAL_S
                point = b"\x09" + struct.pack("<d", value) + b"\x10" + time_ms
                records.append(field(1, labels[at] + field(2, point)))
            bodies.append(compress(records))
    return bodies


def compress(records):
    """Snappy: of each record, what equals the record before at the same place is a copy."""
    out = bytearray(varint(sum(len(record) for record in records)))
    before, literal = b"", bytearray()

    def flush():
        length = len(literal) - 1
        if length < 0:
            return
        if length < 60:
            out.append(length << 2)
        else:
            out.append(61 << 2)
            out.extend(struct.pack("<H", length))
        out.extend(literal)
        literal.clear()

    for record in records:
        at = 0
        while at < len(record):
            end = at
            if len(record) == len(before):
                limit = min(len(record), at + 64)
                while end < limit and record[end] == before[end]:
                    end += 1
            if end - at >= 4:
                flush()
                out.append((end - at - 1) << 2 | 2)
                out.extend(struct.pack("<H", len(before)))
                at = end
            else:
                literal.extend(record[at:max(end, at + 1)])
                at = max(end, at + 1)
        before = record
    flush()
    return bytes(out)


def ingest(options, dir, bodies, queries):
    with Server(options.binaries[0], dir) as server:
        server.wait_until_idle()
        cpu, memory = server.cpu(), server.resident()
        deferred = 0
        for body in bodies:
            while True:
                status, answer = server.request("POST", "/api/v1/write", body, HEADERS)
                if status // 100 == 2:
                    break
                if status not in (429, 503):
                    sys.exit(f"status {status}: {answer!r}")
                deferred += 1
                time.sleep(0.1)
        answered = server.cpu() - cpu
        # What is in memory is flushed when no request has arrived for a second.
        server.wait_until_idle(0.2 if options.recent else 10)
        settled = server.cpu() - cpu
        more = server.resident() - memory
        size = sum(map(len, bodies)) / 1e6
        print(f"ingest of {options.series} x {SAMPLES} ({size:.0f} MB): CPU {answered:.2f} s to "
              f"the last answer, {settled:.2f} s until idle, {deferred} answers of 429, RSS "
              f"{more / options.series:.0f} B per series")
        if options.recent:
            costs = {}
            ask_all(server, queries, costs, options.rounds)
            print("in memory:")
            show(costs)


def ask_all(server, queries, costs, rounds):
    server.wait_until_idle()
    for title, path, expected in queries:
        for number in range(rounds + 1):
            cpu, wall = server.cpu(), time.monotonic()
            status, body = server.request("GET", path)
            wall, cpu = time.monotonic() - wall, server.cpu() - cpu
            answer = json.loads(body)
            if status != 200:
                print(f"{title}: {answer}")
                break
            if number == 0:
                check(title, answer, expected)
                costs.setdefault(f"{title}, first", []).append((cpu * 1e3, wall * 1e3))
            else:
                costs.setdefault(title, []).append((cpu * 1e3, wall * 1e3))


def check(title, answer, expected):
    if expected is None:
        return
    data = answer["data"]
    if isinstance(data, list):
        found = len(data)
    else:
        found = sum(float(stream["value"][1]) for stream in data["result"])
    if abs(found - expected) > 1e-6 * expected:
        print(f"{title}: answers {found} instead of {expected}")


def show(costs):
    all_first = {title.removesuffix(", first"): cost for title, cost in costs.items()
                 if title.endswith(", first")}
    for title, all_costs in costs.items():
        if title.endswith(", first"):
            continue
        cpu = [cost for cost, _ in all_costs]
        wall = [cost for _, cost in all_costs]
        spread = f"{min(cpu):.1f}-{max(cpu):.1f}"
        first = all_first[title][0][0]
        print(f"  {title}: CPU {statistics.median(cpu):.1f} ms ({spread}), "
              f"wall {statistics.median(wall):.0f} ms; first {first:.1f} ms")
    load = os.getloadavg()
    print(f"  load {load[0]:.1f} {load[1]:.1f}", flush=True)


if __name__ == "__main__":
    main()
