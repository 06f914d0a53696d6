package io.github.topdeck;

import java.util.List;

/** A metric. */
public abstract sealed class Metric
        permits Counter, FloatGauge, Gauge, Heartbeat, Histogram, InFlight, Text, UpDownCounter {
    final int small;
    final int large;
    private final MetricException error;

    Metric(Description description, Layout.Kind kind, List<String> tags, long parameter) {
        Cells cells = Cells.NONE;
        MetricException failed = null;
        try {
            cells = Topdeck.file().register(description.checked(tags, parameter), kind);
        } catch (MetricException invalid) {
            failed = invalid;
        }
        small = cells.small();
        large = cells.large();
        error = failed;
    }

    Metric(Description description, Layout.Kind kind) {
        this(description, kind, List.of(), 0);
    }

    /** Why the metric records nothing, or null. */
    public final MetricException error() {
        return error;
    }

    final Cells cells() {
        return new Cells(small, large);
    }

    /** Adds to a counter in the lane of this thread. */
    static void addCell(int small, long n) {
        Lane lane = Topdeck.lane();
        if (small < lane.end) {
            lane.memory.addOwned(small, n);
        } else {
            addCellSlow(small, n);
        }
    }

    private static void addCellSlow(int small, long n) {
        Lane own = Topdeck.prepareLane(small);
        if (own != null) {
            own.memory.addOwned(small, n);
            return;
        }
        Lane shared = Topdeck.sharedLaneForCounts(small);
        if (shared != null) {
            shared.memory.add(small, n);
        }
    }

    /** Sets a cell of lane 0. */
    static void setCell(int small, long word) {
        Lane shared = Topdeck.sharedLane(small);
        if (shared != null) {
            shared.memory.store(small, word);
        }
    }
}
