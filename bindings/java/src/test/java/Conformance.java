import io.github.topdeck.*;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CyclicBarrier;

/** Records what bindings/conformance/suite.py expects: {@code Conformance PART}. */
public final class Conformance {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "kinds" -> kinds();
            case "dies" -> dies();
            case "threads" -> concurrently(8, 3, Integer.parseInt(args[1]));
            case "many" -> concurrently(300, 1, 1000);
            case "buckets" -> buckets(args[1]);
            case "limits" -> limits();
            case "off" -> off();
            default -> System.out.println("unsupported");
        }
    }

    private static void check(Metric... metrics) throws MetricException {
        for (Metric metric : metrics) {
            if (metric.error() != null) {
                throw metric.error();
            }
        }
    }

    private static Description described(String name) {
        return new Description(name);
    }

    private static void kinds() throws Exception {
        // An interrupt must not close the file.
        Thread.currentThread().interrupt();
        Counter answered = new Counter(described("answered_total").help("Answers.")
                .label("route", "home").label("code", "200"));
        answered.add(1);
        answered.add(41);
        if (!Thread.interrupted()) {
            throw new AssertionError("the interrupt is lost");
        }
        UpDownCounter balance = new UpDownCounter(described("balance").unit("By"));
        balance.add(10);
        balance.add(-13);
        Gauge size = new Gauge(described("pool_size").unit("1").role(Role.CAPACITY));
        size.set(100);
        Gauge used =
                new Gauge(described("pool_used").unit("1").role(Role.USAGE).related(size));
        used.set(-7);
        FloatGauge load = new FloatGauge(described("load"));
        load.set(0.25);
        Text state = new Text(described("state"));
        state.set("1.2.3");
        if (!state.set("gr\u00f6\u00dfer") || state.set("a" + "\u00f6".repeat(200))) {
            throw new AssertionError("wrong result of set");
        }
        Heartbeat alive = new Heartbeat(described("alive"), 1_000_000_000);
        alive.beat();
        alive.beat();
        Histogram took = new Histogram(described("took").unit("ns").role(Role.TIMING));
        for (long value : new long[] {0, 1, 2, 1000, 123456789, (1L << 53) + 1}) {
            took.record(value);
        }
        for (int i = 0; i < 3; i++) {
            took.record(Long.MAX_VALUE);
        }
        Histogram slept = new Histogram(described("slept").unit("ns"));
        try (var timer = slept.start()) {
            Thread.sleep(5);
        }
        InFlight work = new InFlight(described("work"), "device", "operation");
        int sda = Topdeck.tag("sda");
        int sdb = Topdeck.tag("sdb");
        int read = Topdeck.tag("read");
        work.begin(17, sda, read);
        var second = work.begin(18, sdb);
        work.begin(19);
        second.end();
        second.end();
        check(answered, balance, size, used, load, state, alive, took, slept, work);
    }

    private static void dies() throws Exception {
        Counter answered = new Counter(described("answered_total"));
        Histogram took = new Histogram(described("took").unit("ns"));
        InFlight work = new InFlight(described("work"), "device");
        work.begin(42, Topdeck.tag("sda"));
        for (int i = 0; i < 1000; i++) {
            answered.increment();
            took.record(i);
        }
        check(answered, took, work);
        System.out.println("ready");
        Thread.sleep(3_600_000);
    }

    private static void concurrently(int count, int rounds, int records) throws Exception {
        Counter answered = new Counter(described("answered_total"));
        Histogram took = new Histogram(described("took").unit("ns"));
        InFlight work = new InFlight(described("work"));
        check(answered, took, work);
        for (int round = 0; round < rounds; round++) {
            CyclicBarrier barrier = new CyclicBarrier(count);
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                threads.add(new Thread(null, () -> {
                    answered.increment();
                    try {
                        barrier.await();
                    } catch (Exception error) {
                        throw new AssertionError(error);
                    }
                    try (var operation = work.begin(1)) {
                        for (int value = 0; value < records; value++) {
                            answered.increment();
                            took.record(value);
                        }
                    }
                }, "records", 256 << 10));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
        }
    }

    private static void buckets(String file) throws Exception {
        Histogram took = new Histogram(described("took"));
        check(took);
        for (String line : Files.readAllLines(Path.of(file))) {
            took.record(Long.parseLong(line));
        }
    }

    private static void limits() {
        for (int i = 0; i < 1100; i++) {
            new Counter(described("many_total").label("n", Integer.toString(i))).increment();
        }
        print(new Counter(described("")));
        print(new Counter(described("a").label("x", "").label("x", "")));
        print(new Counter(described("x".repeat(5000))));
        new Counter(described("twice"));
        Histogram conflict = new Histogram(described("twice"));
        conflict.record(1);
        print(conflict);
    }

    private static void print(Metric metric) {
        System.out.println(metric.error().getMessage());
    }

    private static void off() {
        Counter answered = new Counter(described("answered_total"));
        answered.increment();
        new Histogram(described("took")).record(1);
        new Text(described("state")).set("x");
        new Heartbeat(described("alive"), 0).beat();
        new InFlight(described("work"), "device").begin(1, Topdeck.tag("sda")).end();
        print(answered);
    }
}
