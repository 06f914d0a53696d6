import io.github.topdeck.*;

import java.lang.management.ManagementFactory;
import java.lang.reflect.Method;
import java.util.Arrays;

/**
 * Cost of a record, in ns of CPU time per call with the loop: median and best of 9 rounds of 5
 * million calls. HdrHistogram and Prometheus' client are measured if they are in the class path.
 */
public final class Bench {
    private static final int CALLS = 5_000_000;
    private static final int ROUNDS = 9;
    private static final long[] VALUES = new long[1024];

    /** A loop of its own for each call, so that each is compiled by itself. */
    interface Loop {
        void run(long[] values, int calls) throws Throwable;
    }

    public static void main(String[] args) throws Throwable {
        for (int at = 0; at < VALUES.length; at++) {
            VALUES[at] = 1_000_000 + (at * 2654435761L & 0xfffff);
        }
        Counter counter = new Counter(new Description("bench_total"));
        Histogram took = new Histogram(new Description("bench_took").unit("ns"));
        InFlight work = new InFlight(new Description("bench_work"), "device");
        int sda = Topdeck.tag("sda");
        System.out.printf("%-36s %8s %8s%n", "", "median", "best");
        measure("Counter.add", (values, calls) -> {
            for (int i = 0; i < calls; i++) {
                counter.add(1);
            }
        });
        measure("Histogram.record", (values, calls) -> {
            for (int i = 0; i < calls; i++) {
                took.record(values[i & 1023]);
            }
        });
        measure("Histogram.start, close", (values, calls) -> {
            for (int i = 0; i < calls / 10; i++) {
                try (var timer = took.start()) {
                }
            }
        }, CALLS / 10);
        measure("InFlight.begin, end", (values, calls) -> {
            for (int i = 0; i < calls / 10; i++) {
                work.begin(i, sda).end();
            }
        }, CALLS / 10);
        var adder = new java.util.concurrent.atomic.LongAdder();
        measure("LongAdder.increment", (values, calls) -> {
            for (int i = 0; i < calls; i++) {
                adder.increment();
            }
        });
        for (String peer : new String[] {"BenchHdr", "BenchPrometheus"}) {
            try {
                Method run = Class.forName(peer).getMethod("run");
                run.invoke(null);
            } catch (ClassNotFoundException error) {
                System.out.println(peer + " is not in the class path");
            }
        }
    }

    static void measure(String name, Loop loop) throws Throwable {
        measure(name, loop, CALLS);
    }

    private static void measure(String name, Loop loop, int calls) throws Throwable {
        var threads = ManagementFactory.getThreadMXBean();
        double[] rounds = new double[ROUNDS];
        loop.run(VALUES, CALLS);
        for (int round = 0; round < ROUNDS; round++) {
            long start = threads.getCurrentThreadCpuTime();
            loop.run(VALUES, CALLS);
            rounds[round] = (threads.getCurrentThreadCpuTime() - start) / (double) calls;
        }
        Arrays.sort(rounds);
        System.out.printf("%-36s %8.1f %8.1f%n", name, rounds[ROUNDS / 2], rounds[0]);
    }
}
