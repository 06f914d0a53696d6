#!/usr/bin/env python3
"""Wall time of a light query while a heavy one is asked several times, over HTTP.

    bench/scripts/light.py [--heavy-runs N] [--rounds N] [--function NAME] DIR COMMAND...

DIR/data/store has the set B: `topdeck gen http` of 1,000 series and 1,440 minutes, imported. A
COMMAND starts a `topdeck`, perhaps by a program that forbids something. All are measured in turns:
p50, p99 and maximum of a light query, one every 20 ms, alone and beside the heaviest one. Only
Python's standard library is required.
"""

import argparse
import http.client
import os
import threading
import time
import urllib.parse

from server import Server

START_S, DAY_S = 1_794_700_800, 86_400
PAUSE_S = 0.02
ALONE_S = 3


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--heavy-runs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--function", default="exact_increase")
    parser.add_argument("dir", type=os.path.abspath)
    parser.add_argument("commands", nargs="+")
    options = parser.parse_args()
    grow = options.function
    of_host = f'{grow}(http_request_duration{{host="web-01"}}[5m])'
    light = {"query": f"sum(histogram_count({of_host}))", "time": START_S + DAY_S // 2}
    by_endpoint = f"sum by (endpoint) ({grow}(http_request_duration[5m]))"
    heavy = {
        "query": f"histogram_quantile(0.99, {by_endpoint})",
        "start": START_S + 300,
        "end": START_S + DAY_S,
        "step": "5m",
    }
    light = "/api/v1/query?" + urllib.parse.urlencode(light)
    heavy = "/api/v1/query_range?" + urllib.parse.urlencode(heavy)
    for _ in range(options.rounds):
        for command in options.commands:
            measure(options, command, light, heavy)


def measure(options, command, light, heavy):
    with Server(command, options.dir) as server:
        alone, beside, walls = [], [], []
        is_done = threading.Event()
        ask(server.connection, light)
        ask(server.connection, heavy)
        end = time.monotonic() + ALONE_S
        repeat(server.connection, light, alone, lambda: time.monotonic() > end)

        def ask_heavy():
            address = (server.connection.host, server.connection.port)
            connection = http.client.HTTPConnection(*address, timeout=600)
            walls.extend(ask(connection, heavy) for _ in range(options.heavy_runs))
            is_done.set()

        thread = threading.Thread(target=ask_heavy)
        thread.start()
        repeat(server.connection, light, beside, is_done.is_set)
        thread.join()
        print(command)
        for name, found in [("alone", alone), ("beside", beside)]:
            found.sort()
            half, most = (found[int((len(found) - 1) * share)] * 1e3 for share in (0.5, 0.99))
            worst = found[-1] * 1e3
            print(f"  {name}: p50 {half:.0f} p99 {most:.0f} max {worst:.0f} ms of {len(found)}")
        print(f"  heavy {[round(wall, 2) for wall in walls]} s; load {os.getloadavg()[0]:.1f}",
              flush=True)


def repeat(connection, path, times, is_over):
    while not is_over():
        times.append(ask(connection, path))
        time.sleep(PAUSE_S)


def ask(connection, path):
    """Wall time in seconds."""
    start = time.monotonic()
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200, body[:500]
    return time.monotonic() - start


if __name__ == "__main__":
    main()
