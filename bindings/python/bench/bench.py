"""Cost of a record beside prometheus_client and hdrhistogram, if they are installed.

Nanoseconds per call: median and best of 7 rounds of a million calls, each in a loop without the
cost of the loop.
"""

import statistics
import time

import topdeck

CALLS, ROUNDS = 1_000_000, 7
VALUES = [1_000_000 + (number * 2654435761 & 0xFFFFF) for number in range(CALLS)]


def nothing(value):
    return value


def measure(name, call, calls=CALLS):
    def run(function):
        start = time.process_time_ns()
        for value in VALUES[:calls]:
            function(value)
        return (time.process_time_ns() - start) / calls

    loop = min(run_empty(calls) for _ in range(3))
    rounds = [run(call) - loop for _ in range(ROUNDS)]
    print(f"{name:45} {statistics.median(rounds):7.1f} {min(rounds):7.1f}")


def run_empty(calls):
    start = time.process_time_ns()
    for value in VALUES[:calls]:
        pass
    return (time.process_time_ns() - start) / calls


def main():
    print(f"{'':45} {'median':>7} {'best':>7}")
    counter = topdeck.Counter("bench_total")
    took = topdeck.Histogram("bench_took", unit="ns")
    work = topdeck.InFlight("bench_work", tags=["device"])
    sda = topdeck.tag("sda")
    measure("Counter.add", counter.add)
    measure("Histogram.record", took.record)

    def timed(_):
        with took.start():
            pass

    measure("with Histogram.start()", timed, CALLS // 10)
    measure("InFlight.begin, end", lambda number: work.begin(number, sda).end(), CALLS // 10)
    measure("a Python function that returns its argument", nothing)
    try:
        import prometheus_client
    except ImportError:
        print("prometheus_client is not installed")
    else:
        measure("prometheus_client Counter.inc",
                prometheus_client.Counter("bench_p", "p").inc, CALLS // 10)
        measure("prometheus_client Histogram.observe",
                prometheus_client.Histogram("bench_h", "h").observe, CALLS // 10)
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError:
        print("hdrhistogram is not installed")
    else:
        measure("HdrHistogram.record_value",
                HdrHistogram(1, 3_600_000_000_000, 3).record_value, CALLS // 10)


if __name__ == "__main__":
    main()
