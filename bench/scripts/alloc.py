#!/usr/bin/env python3
"""Costs of topdeck's memory allocator, over HTTP: CPU time of ingest and queries, resident memory.

    bench/scripts/alloc.py [--rounds N] [--settle SECONDS] NAME=BINARY...

Each BINARY is a `topdeck` that differs from the others only in its allocator, build profile or C
library. Each round runs every binary once on an empty store,
in rotating order:

1. ingest: OTLP over HTTP, exponential histograms of 160 buckets on 4 connections, and Influx lines
   on one more. CPU time is that of the server, until the store has caught up with the journal.
2. queries: percentiles of all series at 150 steps; then heavy queries, 2 at once: 10 samples of
   every series in one response of about 100 MB.
3. memory: VmHWM is the peak; RssAnon is read after the last response, and again SETTLE seconds
   later.

CPU time comes from /proc/PID/stat (utime + stime, 10 ms), memory from /proc/PID/status. The table
has medians over rounds, with minimum and maximum, and the ratio of each median to that of
the first binary. Only Python's standard library is required.

An allocator in a shared library needs no separate build: BINARY may be a script with the line
`LD_PRELOAD=/path/to/library.so exec /path/to/topdeck "$@"`, for a topdeck without its own
allocator.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from protobuf import field, varint, zigzag
from server import START_TIMEOUT_S, WITHOUT_SOURCES, free_port

LANES = 4
SERIES = 400  # per lane
STEPS = 60
STEP_S = 10
ASKERS = 2  # at once, in the heavy query
READINGS = 10  # of each series in each response of the heavy query; limit of a response: 256 MiB
BUCKETS = 160
SCALE, OFFSET = 4, -122  # the first bucket is about 5 ms
VALUES_PER_STEP = 50
LINES_PER_BODY = 2_000
TICK = os.sysconf("SC_CLK_TCK")
METRIC = "http.server.request.duration"


def main():
    options = parse_options()
    bodies = make_bodies()
    lines = make_lines()
    size = sum(len(body) for lane in bodies for body in lane) / 1e6
    points = LANES * SERIES * STEPS
    print(f"# {points} exponential histograms ({size:.0f} MB of OTLP), "
          f"{STEPS * LINES_PER_BODY} lines; {options.rounds} rounds; settle {options.settle} s",
          flush=True)
    results = {name: [] for name, _ in options.binaries}
    for round_number in range(options.rounds):
        turn = round_number % len(options.binaries)
        for name, binary in options.binaries[turn:] + options.binaries[:turn]:
            figures = run_once(binary, bodies, lines, options.settle)
            results[name].append(figures)
            cells = "\t".join(f"{key}={value:.3f}" for key, value in figures.items())
            print(f"{round_number}\t{name}\t{cells}", flush=True)
    print_table(results)


def parse_options():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settle", type=float, default=12.0)
    parser.add_argument("binaries", nargs="+", metavar="NAME=BINARY")
    options = parser.parse_args()
    pairs = [one.split("=", 1) for one in options.binaries]
    # Each server has its own directory.
    options.binaries = [(name, os.path.abspath(binary)) for name, binary in pairs]
    return options


def run_once(binary, bodies, lines, settle_s):
    dir = tempfile.mkdtemp(prefix="topdeck-alloc-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    port = free_port()
    config = os.path.join(dir, "topdeck.toml")
    with open(config, "w") as file:
        file.write(f'[http]\nlisten = ["127.0.0.1:{port}"]\n'
                   "[http.limits]\nmax_buffered_response_bytes = 1073741824\n"
                   f"{WITHOUT_SOURCES}")
    log = open(os.path.join(dir, "log"), "w+")
    server = subprocess.Popen(
        [binary, "serve", "--config", config, "--data-dir", os.path.join(dir, "data")],
        cwd=dir, stdout=log, stderr=log)
    try:
        await_ready(server, port, log)
        return measure(server.pid, port, bodies, lines, settle_s)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()
        shutil.rmtree(dir)


def measure(pid, port, bodies, lines, settle_s):
    figures = {}
    wall, cpu = time.monotonic(), cpu_s(pid)
    sent = [("/v1/metrics", "application/x-protobuf", lane) for lane in bodies]
    sent.append(("/write?precision=s", "text/plain", lines))
    senders = [threading.Thread(target=send, args=(port, *one)) for one in sent]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    if FAILURES:
        sys.exit(f"a request failed: {FAILURES[0]}")
    await_store(pid, port)
    figures["ingest wall s"] = time.monotonic() - wall
    figures["ingest CPU s"] = cpu_s(pid) - cpu
    figures["ingest RSS MB"] = memory_mb(pid)["RssAnon"]

    end = START_S + STEPS * STEP_S
    name = urllib.parse.quote
    rate = f'rate({{__name__="{METRIC}"}}[1m])'
    percentiles = name(f"histogram_quantile(0.99, sum by (http_route) ({rate}))")
    everything = name(f'{{__name__="{METRIC}"}}[{READINGS * STEP_S}s]')
    numbers = name('sum by (host) ({__name__=~"cpu.*"})')
    wall, cpu = time.monotonic(), cpu_s(pid)
    steps = f"start={START_S}&end={end}&step=4"
    if not get(port, f"/api/v1/query_range?query={percentiles}&{steps}")["result"]:
        sys.exit("the query found no series")
    get(port, f"/api/v1/query_range?query={numbers}&{steps}")
    figures["query wall s"] = time.monotonic() - wall
    figures["query CPU s"] = cpu_s(pid) - cpu
    wall, cpu = time.monotonic(), cpu_s(pid)
    times = [end - asker * READINGS * STEP_S for asker in range(ASKERS)]
    askers = [threading.Thread(target=ask_all, args=(port, everything, time_s)) for time_s in times]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    if FAILURES:
        sys.exit(f"a query failed: {FAILURES[0]}")
    figures["heavy wall s"] = time.monotonic() - wall
    figures["heavy CPU s"] = cpu_s(pid) - cpu
    memory = memory_mb(pid)
    figures["peak RSS MB"] = memory["VmHWM"]
    figures["RSS right after MB"] = memory["RssAnon"]
    cpu = cpu_s(pid)
    time.sleep(settle_s)
    figures["RSS settled MB"] = memory_mb(pid)["RssAnon"]
    figures["CPU while settling s"] = cpu_s(pid) - cpu
    return figures


FAILURES = []


def ask_all(port, query, time_s):
    """Checks the size of the response: parsing takes longer than the query."""
    try:
        size = get_bytes(port, f"/api/v1/query?query={query}&time={time_s}")
        least = 1_000 * LANES * SERIES * (READINGS - 2)
        if size < least:
            raise RuntimeError(f"an answer of {size} bytes; {least} are the least")
    except Exception as error:  # reported by the main thread
        FAILURES.append(error)


def send(port, path, content_type, requests):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        for body in requests:
            while True:
                connection.request("POST", path, body, {"Content-Type": content_type})
                answer = connection.getresponse()
                text = answer.read()
                if answer.status == 429:  # backpressure
                    time.sleep(0.2)
                    continue
                if answer.status >= 300:
                    raise RuntimeError(f"{path}: {answer.status} {text[:300]}")
                break
    except Exception as error:  # reported by the main thread
        FAILURES.append(error)
    finally:
        connection.close()


def get_bytes(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("GET", path)
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {answer.read(500)}")
    size = 0
    while piece := answer.read(1 << 20):
        size += len(piece)
    connection.close()
    return size


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status != 200:
        sys.exit(f"{path}: {answer.status} {text[:500]}")
    return json.loads(text)["data"]


def await_ready(server, port, log):
    until = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/metrics")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        if server.poll() is not None or time.monotonic() > until:
            log.seek(0)
            sys.exit(f"topdeck does not answer:\n{log.read()}")
        time.sleep(0.05)


def await_store(pid, port):
    """Ingest is over when the server has used no CPU for half a second."""
    while True:
        before = cpu_s(pid)
        time.sleep(0.5)
        if cpu_s(pid) - before <= 1 / TICK:
            return


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def memory_mb(pid):
    with open(f"/proc/{pid}/status") as file:
        pairs = (line.split(":", 1) for line in file)
        sizes = (pair for pair in pairs if pair[0].startswith(("Vm", "Rss")))
        return {key: int(value.split()[0]) / 1024 for key, value in sizes}


def print_table(results):
    names = list(results)
    first = results[names[0]]
    print(f"\n| | {' | '.join(names)} |\n|---|{'--:|' * len(names)}")
    for key in first[0]:
        base = statistics.median(figures[key] for figures in first)
        cells = []
        for name in names:
            values = [figures[key] for figures in results[name]]
            median = statistics.median(values)
            ratio = f", × {median / base:.2f}" if base > 0 else ""
            cells.append(f"{median:.2f} ({min(values):.2f}–{max(values):.2f}){ratio}")
        print(f"| {key} | {' | '.join(cells)} |")


# Request bodies: encoded once, equal for all binaries. Fields are those of
# opentelemetry/proto/metrics/v1/metrics.proto.

START_S = int(time.time()) - STEPS * STEP_S - 30


def make_bodies():
    return [make_lane(lane) for lane in range(LANES)]


def make_lane(lane):
    numbers = random.Random(lane)
    series = []
    for at in range(SERIES):
        attributes = b"".join(attribute(1, key, value) for key, value in (
            ("http.request.method", ("GET", "PUT", "POST", "DELETE")[at % 4]),
            ("http.route", f"/shop/{at % 50}"),
            ("server.address", f"shop-{at}.example")))
        series.append([attributes, [1] * BUCKETS])
    resource = attribute(1, "service.name", "shop-frontend")
    resource += attribute(1, "service.instance.id", f"shop-{lane}")
    bodies = []
    for step in range(STEPS):
        points = bytearray()
        for attributes, counts in series:
            for _ in range(VALUES_PER_STEP):
                bits = numbers.getrandbits(32)
                # The sum of four uniform numbers: a bell-shaped distribution over all buckets.
                place = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24)
                counts[place * BUCKETS >> 10] += 1
            points += field(1, point(attributes, counts, START_S, START_S + (step + 1) * STEP_S))
        data = bytes(points) + varint_field(2, 2)  # 2: cumulative
        metric = field(1, METRIC.encode()) + field(3, b"s") + field(10, data)
        bodies.append(field(1, field(1, resource) + field(2, field(2, metric))))
    return bodies


def point(attributes, counts, start_s, time_s):
    middle = [2 ** ((OFFSET + at + 0.5) / (1 << SCALE)) for at in range(BUCKETS)]
    total = sum(count * value for count, value in zip(counts, middle))
    packed = b"".join(varint(count) for count in counts)
    buckets = varint(1 << 3) + zigzag(OFFSET) + field(2, packed)
    return (attributes + fixed(2, start_s * 10**9) + fixed(3, time_s * 10**9)
            + fixed(4, sum(counts)) + varint(5 << 3 | 1) + struct.pack("<d", total)
            + varint(6 << 3) + zigzag(SCALE) + field(8, buckets))


def attribute(number, key, value):
    return field(number, field(1, key.encode()) + field(2, field(1, value.encode())))


def varint_field(number, value):
    return varint(number << 3) + varint(value)


def fixed(number, value):
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def make_lines():
    numbers = random.Random(17)
    bodies = []
    for step in range(STEPS):
        text = "".join(
            f"cpu,host=web-{at % 100},core={at // 100},zone=eu-1 used={numbers.random() * 100:.3f},"
            f"idle={numbers.random() * 100:.3f} {START_S + (step + 1) * STEP_S}\n"
            for at in range(LINES_PER_BODY))
        bodies.append(text.encode())
    return bodies


if __name__ == "__main__":
    main()
