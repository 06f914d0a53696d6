"""Records what bindings/conformance/suite.py expects: `conformance.py PART`."""

import os
import sys
import threading
import time

import topdeck
from topdeck import Role


def check(*metrics):
    for metric in metrics:
        assert metric.error is None, metric.error


def kinds():
    answered = topdeck.Counter(
        "answered_total", help="Answers.", labels={"route": "home", "code": "200"}
    )
    answered.add()
    answered.add(41)
    balance = topdeck.UpDownCounter("balance", unit="By")
    balance.add(10)
    balance.add(-13)
    size = topdeck.Gauge("pool_size", unit="1", role=Role.CAPACITY)
    size.set(100)
    used = topdeck.Gauge("pool_used", unit="1", role=Role.USAGE, related=size)
    used.set(-7)
    load = topdeck.FloatGauge("load")
    load.set(0.25)
    state = topdeck.Text("state")
    state.set("1.2.3")
    assert state.set("größer") and not state.set("a" + "ö" * 200)
    alive = topdeck.Heartbeat("alive", every_ns=1_000_000_000)
    alive.beat()
    alive.beat()
    took = topdeck.Histogram("took", unit="ns", role=Role.TIMING)
    for value in [0, 1, 2, 1000, 123456789, (1 << 53) + 1, *[(1 << 63) - 1] * 3]:
        took.record(value)
    slept = topdeck.Histogram("slept", unit="ns")
    with slept.start():
        time.sleep(0.005)
    work = topdeck.InFlight("work", tags=["device", "operation"])
    sda, sdb, read = topdeck.tag("sda"), topdeck.tag("sdb"), topdeck.tag("read")
    work.begin(17, sda, read)
    with work.begin(18, sdb) as second:
        pass
    second.end()
    work.begin(19)
    check(answered, balance, size, used, load, state, alive, took, slept, work)


def dies():
    answered = topdeck.Counter("answered_total")
    took = topdeck.Histogram("took", unit="ns")
    work = topdeck.InFlight("work", tags=["device"])
    work.begin(42, topdeck.tag("sda"))
    for i in range(1000):
        answered.add(1)
        took.record(i)
    check(answered, took, work)
    print("ready", flush=True)
    time.sleep(3600)


def threads():
    concurrently(8, 3, int(sys.argv[2]))


def many():
    concurrently(300, 1, 1000)


def concurrently(count, rounds, records):
    answered = topdeck.Counter("answered_total")
    took = topdeck.Histogram("took", unit="ns")
    work = topdeck.InFlight("work")
    check(answered, took, work)
    barrier = threading.Barrier(count)

    def run():
        answered.add()
        barrier.wait()
        with work.begin(1):
            for i in range(records):
                answered.add()
                took.record(i)

    for _ in range(rounds):
        group = [threading.Thread(target=run) for _ in range(count)]
        for thread in group:
            thread.start()
        for thread in group:
            thread.join()


def buckets():
    took = topdeck.Histogram("took")
    check(took)
    with open(sys.argv[2]) as file:
        for line in file:
            took.record(int(line))


def limits():
    for i in range(1100):
        topdeck.Counter("many_total", labels={"n": str(i)}).add()
    print(topdeck.Counter("").error)
    # A dict has no duplicate label.
    print("duplicate label")
    print(topdeck.Counter("x" * 5000).error)
    topdeck.Counter("twice")
    conflict = topdeck.Histogram("twice")
    conflict.record(1)
    print(conflict.error)


def off():
    answered = topdeck.Counter("answered_total")
    answered.add(1)
    topdeck.Histogram("took").record(1)
    topdeck.Text("state").set("x")
    topdeck.Heartbeat("alive").beat()
    topdeck.InFlight("work", tags=["device"]).begin(1, topdeck.tag("sda")).end()
    print(answered.error)


def forks():
    answered = topdeck.Counter("answered_total")
    inherited = topdeck.InFlight("work").begin(1)
    answered.add(1000)
    child = os.fork()
    if child == 0:
        answered.add(7)
        # Only the parent can end it.
        inherited.end()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    answered.add(1000)
    inherited.end()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
