package io.github.topdeck.micrometer;

import io.github.topdeck.Description;
import io.github.topdeck.FloatGauge;
import io.github.topdeck.Histogram;
import io.github.topdeck.Role;
import io.micrometer.core.instrument.AbstractDistributionSummary;
import io.micrometer.core.instrument.AbstractTimer;
import io.micrometer.core.instrument.Clock;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.DistributionSummary;
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.FunctionTimer;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.LongTaskTimer;
import io.micrometer.core.instrument.Measurement;
import io.micrometer.core.instrument.Meter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tag;
import io.micrometer.core.instrument.Timer;
import io.micrometer.core.instrument.config.NamingConvention;
import io.micrometer.core.instrument.cumulative.CumulativeFunctionCounter;
import io.micrometer.core.instrument.cumulative.CumulativeFunctionTimer;
import io.micrometer.core.instrument.distribution.DistributionStatisticConfig;
import io.micrometer.core.instrument.distribution.TimeWindowMax;
import io.micrometer.core.instrument.distribution.pause.PauseDetector;
import io.micrometer.core.instrument.internal.DefaultGauge;
import io.micrometer.core.instrument.internal.DefaultLongTaskTimer;
import io.micrometer.core.instrument.internal.DefaultMeter;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.ToDoubleFunction;
import java.util.function.ToLongFunction;

/**
 * Registry of Micrometer that records in shared memory.
 *
 * <p>Timers and summaries keep their whole distribution: the settings of percentiles and buckets
 * have no effect. Gauges, long task timers and function meters are read once a second by a thread,
 * because nobody is called when they change. Names are in snake case; timers are in ns.
 */
public final class TopdeckMeterRegistry extends MeterRegistry {
    /** Reads of the meters that have only a function. */
    private final Map<Meter.Id, Runnable> polled = new ConcurrentHashMap<>();

    private final ScheduledExecutorService poller;

    /** A registry that polls once a second. */
    public TopdeckMeterRegistry() {
        super(Clock.SYSTEM);
        config().namingConvention(NamingConvention.snakeCase);
        config().onMeterRemoved(meter -> polled.remove(meter.getId()));
        poller = Executors.newSingleThreadScheduledExecutor(work -> {
            Thread thread = new Thread(work, "topdeck-poll");
            thread.setDaemon(true);
            return thread;
        });
        poller.scheduleWithFixedDelay(this::poll, 1, 1, TimeUnit.SECONDS);
    }

    /** Reads gauges and function meters now. */
    public void poll() {
        for (Runnable read : polled.values()) {
            try {
                read.run();
            } catch (RuntimeException error) {
                // A gauge of the program failed: the others are read.
            }
        }
    }

    @Override
    public void close() {
        poll();
        poller.shutdown();
        super.close();
    }

    private Description describe(Meter.Id id, String suffix, String unit) {
        Description description = new Description(getConventionName(id) + suffix)
                .help(id.getDescription() == null ? "" : id.getDescription())
                .unit(unit == null ? "" : unit);
        for (Tag tag : getConventionTags(id)) {
            description.label(tag.getKey(), tag.getValue());
        }
        return description;
    }

    @Override
    protected <T> Gauge newGauge(Meter.Id id, T object, ToDoubleFunction<T> value) {
        FloatGauge gauge = new FloatGauge(describe(id, "", id.getBaseUnit()));
        Gauge meter = new DefaultGauge<>(id, object, value);
        polled.put(id, () -> gauge.set(meter.value()));
        return meter;
    }

    /** Counts the increases of a cumulative value; returns what reads it. */
    private Runnable countIncreases(Description description, java.util.function.DoubleSupplier of) {
        RecordingCounter counter = new RecordingCounter(description, null);
        return new Runnable() {
            private double before;

            @Override
            public void run() {
                double now = of.getAsDouble();
                if (now > before) {
                    counter.increment(now - before);
                    before = now;
                }
            }
        };
    }

    @Override
    protected Counter newCounter(Meter.Id id) {
        return new RecordingCounter(describe(id, "", id.getBaseUnit()), id);
    }

    @Override
    protected <T> FunctionCounter newFunctionCounter(
            Meter.Id id, T object, ToDoubleFunction<T> count) {
        FunctionCounter meter = new CumulativeFunctionCounter<>(id, object, count);
        polled.put(id, countIncreases(describe(id, "", id.getBaseUnit()), meter::count));
        return meter;
    }

    @Override
    protected <T> FunctionTimer newFunctionTimer(Meter.Id id, T object, ToLongFunction<T> count,
            ToDoubleFunction<T> total, TimeUnit unit) {
        FunctionTimer meter =
                new CumulativeFunctionTimer<>(id, object, count, total, unit, TimeUnit.NANOSECONDS);
        Runnable counts = countIncreases(describe(id, "_count", ""), meter::count);
        Runnable times = countIncreases(
                describe(id, "_sum", "ns"), () -> meter.totalTime(TimeUnit.NANOSECONDS));
        polled.put(id, () -> {
            counts.run();
            times.run();
        });
        return meter;
    }

    @Override
    protected LongTaskTimer newLongTaskTimer(Meter.Id id, DistributionStatisticConfig config) {
        LongTaskTimer meter =
                new DefaultLongTaskTimer(id, clock, TimeUnit.NANOSECONDS, config, false);
        FloatGauge active = new FloatGauge(describe(id, "_active", ""));
        FloatGauge oldest = new FloatGauge(describe(id, "_max", "ns"));
        polled.put(id, () -> {
            active.set(meter.activeTasks());
            oldest.set(meter.max(TimeUnit.NANOSECONDS));
        });
        return meter;
    }

    @Override
    protected Meter newMeter(Meter.Id id, Meter.Type type, Iterable<Measurement> measurements) {
        List<Runnable> reads = new java.util.ArrayList<>();
        for (Measurement one : measurements) {
            String suffix = "_" + one.getStatistic().getTagValueRepresentation();
            FloatGauge gauge = new FloatGauge(describe(id, suffix, id.getBaseUnit()));
            reads.add(() -> gauge.set(one.getValue()));
        }
        polled.put(id, () -> reads.forEach(Runnable::run));
        return new DefaultMeter(id, type, measurements);
    }

    @Override
    protected Timer newTimer(
            Meter.Id id, DistributionStatisticConfig config, PauseDetector pauseDetector) {
        Description description = describe(id, "", "ns").role(Role.TIMING);
        return new RecordingTimer(id, clock, config, pauseDetector, description);
    }

    @Override
    protected DistributionSummary newDistributionSummary(
            Meter.Id id, DistributionStatisticConfig config, double scale) {
        Description description = describe(id, "", id.getBaseUnit());
        return new RecordingSummary(id, clock, config, scale, description);
    }

    @Override
    protected TimeUnit getBaseTimeUnit() {
        return TimeUnit.NANOSECONDS;
    }

    @Override
    protected DistributionStatisticConfig defaultHistogramConfig() {
        return DistributionStatisticConfig.DEFAULT;
    }

    /** Counters of Micrometer have fractions, those in shared memory do not: the rest is kept. */
    private static final class RecordingCounter extends io.micrometer.core.instrument.AbstractMeter
            implements Counter {
        private final io.github.topdeck.Counter counter;
        private double count;
        private long recorded;

        RecordingCounter(Description description, Meter.Id id) {
            super(id);
            counter = new io.github.topdeck.Counter(description);
        }

        @Override
        public synchronized void increment(double amount) {
            count += Math.max(amount, 0);
            long whole = (long) count;
            if (whole > recorded) {
                counter.add(whole - recorded);
                recorded = whole;
            }
        }

        @Override
        public synchronized double count() {
            return count;
        }
    }

    private static final class RecordingTimer extends AbstractTimer {
        private final Histogram histogram;
        private final LongAdder count = new LongAdder();
        private final LongAdder totalNs = new LongAdder();
        private final TimeWindowMax max;

        RecordingTimer(Meter.Id id, Clock clock, DistributionStatisticConfig config,
                PauseDetector pauseDetector, Description description) {
            super(id, clock, config, pauseDetector, TimeUnit.NANOSECONDS, false);
            histogram = new Histogram(description);
            max = new TimeWindowMax(clock, config);
        }

        @Override
        protected void recordNonNegative(long amount, TimeUnit unit) {
            long ns = unit.toNanos(amount);
            histogram.record(ns);
            count.increment();
            totalNs.add(ns);
            max.record(ns, TimeUnit.NANOSECONDS);
        }

        @Override
        public long count() {
            return count.sum();
        }

        @Override
        public double totalTime(TimeUnit unit) {
            return totalNs.sum() / (double) unit.toNanos(1);
        }

        @Override
        public double max(TimeUnit unit) {
            return max.poll(unit);
        }
    }

    private static final class RecordingSummary extends AbstractDistributionSummary {
        private final Histogram histogram;
        private final LongAdder count = new LongAdder();
        private final java.util.concurrent.atomic.DoubleAdder total =
                new java.util.concurrent.atomic.DoubleAdder();
        private final TimeWindowMax max;

        RecordingSummary(Meter.Id id, Clock clock, DistributionStatisticConfig config, double scale,
                Description description) {
            super(id, clock, config, scale, false);
            histogram = new Histogram(description);
            max = new TimeWindowMax(clock, config);
        }

        @Override
        protected void recordNonNegative(double amount) {
            histogram.record(Math.round(amount));
            count.increment();
            total.add(amount);
            max.record(amount);
        }

        @Override
        public long count() {
            return count.sum();
        }

        @Override
        public double totalAmount() {
            return total.sum();
        }

        @Override
        public double max() {
            return max.poll();
        }
    }
}
