#!/usr/bin/env python3
"""CPU time of queries over a week of one cumulative native histogram, over HTTP.

    bench/scripts/week.py [--rounds N] [--keep DIR] BINARY...

Sends 10,080 histograms, one a minute, of schema 5 with some 580 buckets by remote write 1, as set A
of `bench path`: five modes, some 120,000 values a minute. The server is stopped and started again,
then asked; with several binaries, each on the same directory, in turns. CPU time is that of the
process (its CPU clock); numbers are medians of ROUNDS with minimum and maximum, after one answer
that does not count. Only Python's standard library is required.
"""

import argparse
import math
import os
import random
import struct
import sys
import tempfile
import urllib.parse

from growth import ask_all, show
from protobuf import HEADERS, field, label, literal, varint, zigzag
from server import Server

MINUTES = 10_080
START_S = 1_794_096_000
PER_REQUEST = 120
SCHEMA = 5
VALUES = 121_700
# Median in seconds, standard deviation of the logarithm, share.
MODES = [
    (0.0001, 0.35, 0.55),
    (0.0004, 0.5, 0.25),
    (0.0025, 0.5, 0.15),
    (0.009, 0.6, 0.045),
    (0.06, 0.9, 0.005),
]
BUCKETS = range(-520, 60)


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--keep", help="directory that is kept; ingest is skipped if it has data")
    parser.add_argument("binaries", nargs="+", type=os.path.abspath)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        dir = os.path.abspath(options.keep or temporary)
        os.makedirs(dir, exist_ok=True)
        if not os.path.exists(f"{dir}/data"):
            ingest(options.binaries[0], dir)
        for binary in options.binaries:
            costs = {}
            with Server(binary, dir) as server:
                ask_all(server, queries(), costs, options.rounds)
            print(binary)
            show(costs)


def queries():
    def path(text, minutes):
        start, end = START_S + minutes * 60, START_S + MINUTES * 60
        options = {"query": text, "start": start, "end": end, "step": f"{minutes}m"}
        return "/api/v1/query_range?" + urllib.parse.urlencode(options)

    found = []
    for over in ("increase", "exact_increase"):
        growth = f"{over}(disk_io_latency[4m])"
        texts = [
            (f"{over}(disk_io_latency[90m])", 90),
            (f"histogram_quantile(0.99, {growth})", 4),
            (f"histogram_fraction(-Inf, 0.0123, {growth})", 4),
        ]
        found += [(text, path(text, minutes), None) for text, minutes in texts]
    return found


def ingest(binary, dir):
    generator = random.Random(1)
    means = [VALUES * share_of(index) for index in BUCKETS]
    counts, total = [0] * len(means), 0.0
    middles = [2 ** ((index - 0.5) / 2**SCHEMA) for index in BUCKETS]
    with Server(binary, dir) as server:
        labels = label("__name__", "disk_io_latency") + label("host", "db-01")
        for first in range(0, MINUTES, PER_REQUEST):
            series = labels
            for minute in range(first, first + PER_REQUEST):
                load = 1 + 0.4 * math.sin(minute / 1440 * 2 * math.pi)
                for at, mean in enumerate(means):
                    more = draw(generator, mean * load)
                    counts[at] += more
                    total += more * middles[at]
                series += field(4, histogram(counts, total, (START_S + minute * 60 + 60) * 1000))
            body = field(1, series)
            status, answer = server.request("POST", "/api/v1/write", literal(body), HEADERS)
            if status // 100 != 2:
                sys.exit(f"status {status}: {answer!r}")
        server.wait_until_idle(5)


def share_of(index):
    upper, lower = (math.log(2) * at / 2**SCHEMA for at in (index, index - 1))

    def below(at, median, deviation):
        return math.erfc((math.log(median) - at) / deviation / 2**0.5) / 2

    return sum(s * (below(upper, m, d) - below(lower, m, d)) for m, d, s in MODES)


def draw(generator, mean):
    if mean > 20:
        return max(0, round(generator.gauss(mean, mean**0.5)))
    limit, product, count = math.exp(-mean), generator.random(), 0
    while product > limit:
        product *= generator.random()
        count += 1
    return count


def histogram(counts, total, time_ms):
    spans, deltas, before = b"", b"", 0
    # The first offset is an index; the others are distances from the end of the span before.
    at, passed = 0, 0
    is_first = True
    while at < len(counts):
        if counts[at] == 0:
            at += 1
            continue
        end = at
        while end < len(counts) and counts[end] > 0:
            deltas += zigzag(counts[end] - before)
            before = counts[end]
            end += 1
        offset = BUCKETS[0] + at if is_first else at - passed
        spans += field(11, b"\x08" + zigzag(offset) + b"\x10" + varint(end - at))
        at = passed = end
        is_first = False
    return (b"\x08" + varint(sum(counts)) + b"\x19" + struct.pack("<d", total)
            + b"\x20" + zigzag(SCHEMA) + b"\x29" + struct.pack("<d", 2.0**-128)
            + b"\x30" + varint(0) + spans + field(12, deltas) + b"\x78" + varint(time_ms))


if __name__ == "__main__":
    main()
