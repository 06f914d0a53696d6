package io.github.topdeck;

import static io.github.topdeck.Layout.*;

import java.util.concurrent.Callable;

/**
 * Distribution of integers, relative error at most 1.08 %; count, sum, minimum and maximum are
 * exact. Times are nanoseconds.
 */
public final class Histogram extends Metric {
    /** Registers a histogram, or finds it. */
    public Histogram(Description description) {
        super(description, Kind.HISTOGRAM);
    }

    /** Records a value; a negative one is recorded as 0. */
    public void record(long value) {
        Lane lane = Topdeck.lane();
        if (small < lane.end && value > 0) {
            Memory memory = lane.memory;
            int bucket = Bucket.of(value);
            // The last bucket, the only one of its group, belongs to the first group.
            if ((memory.loadOwned(small + TOUCHED) >>> (bucket >>> SCALE) & 1) != 0) {
                recordOwned(memory, value, large + bucket * 8);
                return;
            }
        }
        recordSlow(Math.max(value, 0));
    }

    /** In this order: a reader reads the bucket first and {@code begun} last. */
    private void recordOwned(Memory memory, long value, int cell) {
        memory.addOwned(small + BEGUN, 1);
        Memory.fence();
        long sum = memory.loadOwned(small + SUM_LOW) + value;
        memory.storeOwned(small + SUM_LOW, sum);
        if (Long.compareUnsigned(sum, value) < 0) {
            memory.addOwned(small + SUM_HIGH, 1);
        }
        if (value > memory.loadOwned(small + MAX)) {
            memory.storeOwned(small + MAX, value);
        }
        if (Long.compareUnsigned(~value, memory.loadOwned(small + NOT_MIN)) > 0) {
            memory.storeOwned(small + NOT_MIN, ~value);
        }
        Memory.fence();
        memory.addOwned(cell, 1);
    }

    private void recordSlow(long value) {
        Lane own = Topdeck.prepareLane(small);
        if (own != null) {
            if (reserveGroup(own, value)) {
                recordOwned(own.memory, value, cellOf(value));
            }
            return;
        }
        Lane shared = Topdeck.sharedLaneForCounts(small);
        if (shared != null && reserveGroup(shared, value)) {
            Memory memory = shared.memory;
            memory.add(small + BEGUN, 1);
            long low = memory.add(small + SUM_LOW, value);
            if (Long.compareUnsigned(low + value, value) < 0) {
                memory.add(small + SUM_HIGH, 1);
            }
            memory.raise(small + MAX, value);
            memory.raise(small + NOT_MIN, ~value);
            memory.add(cellOf(value), 1);
        }
    }

    private int cellOf(long value) {
        return value == 0 ? small + ZERO : large + Bucket.of(value) * 8;
    }

    /** Reserves space for the bucket of a value; false without space. */
    private boolean reserveGroup(Lane lane, long value) {
        if (value == 0) {
            return true;
        }
        int group = Bucket.of(value) >>> SCALE & 63;
        if ((lane.memory.loadAcquire(small + TOUCHED) >>> group & 1) != 0) {
            return true;
        }
        MetricsFile file;
        try {
            file = Topdeck.file();
        } catch (MetricException error) {
            return false;
        }
        Runnable touch = () -> lane.memory.or(small + TOUCHED, 1L << group);
        if (group > 0) {
            return file.reserveLarge(lane, large + group * GROUP_BYTES, GROUP_BYTES, touch);
        }
        return file.reserveLarge(lane, large, GROUP_BYTES, () -> {})
                && file.reserveLarge(lane, large + 64 * GROUP_BYTES, 8, touch);
    }

    /** Starts a timer. */
    public Timer start() {
        return new Timer(this);
    }

    /** Records the duration of a call, also if it throws. */
    public <T> T time(Callable<T> work) throws Exception {
        long since = System.nanoTime();
        try {
            return work.call();
        } finally {
            record(System.nanoTime() - since);
        }
    }

    /** A running timer. */
    public static final class Timer implements AutoCloseable {
        private final long since = System.nanoTime();
        private Histogram histogram;

        private Timer(Histogram histogram) {
            this.histogram = histogram;
        }

        /** Records the time since the start; returns nanoseconds. Only the first call records. */
        public long stop() {
            long took = System.nanoTime() - since;
            if (histogram != null) {
                histogram.record(took);
                histogram = null;
            }
            return took;
        }

        /** Records nothing. */
        public void cancel() {
            histogram = null;
        }

        @Override
        public void close() {
            stop();
        }
    }
}
