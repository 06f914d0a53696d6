package io.github.topdeck;

import static io.github.topdeck.Layout.*;

import java.util.List;

/**
 * Operations that have started and not ended. Each lane has 16,384 slots; an operation without a
 * slot is counted too.
 */
public final class InFlight extends Metric {
    private static final int SLOTS_PER_PAGE = PAGE / SLOT_BYTES;
    /** Slots probed before more space is reserved. */
    private static final int PROBES_MAX = 64;

    /** Registers a table, or finds it; {@code tags} are the names of up to four tags. */
    public InFlight(Description description, String... tags) {
        super(description, Kind.IN_FLIGHT, List.of(tags), 0);
    }

    /**
     * Starts an operation now. {@code number} is chosen by the program (of a request, of a block);
     * {@code tags} are results of {@link Topdeck#tag}, in the order of their names.
     */
    public Operation begin(long number, int... tags) {
        Lane lane = Topdeck.lane();
        if (small >= lane.end) {
            lane = Topdeck.prepareLane(small);
        }
        if (lane != null) {
            lane.memory.addOwned(small + STARTED, 1);
        } else {
            lane = Topdeck.sharedLaneForCounts(small);
            if (lane == null) {
                // The start was not counted, so the end must not be.
                return new Operation(-1, null, 0);
            }
            lane.memory.add(small + STARTED, 1);
        }
        int index = claim(lane);
        if (index < 0) {
            lane.memory.add(small + UNTRACKED, 1);
            return new Operation(small, null, 0);
        }
        int slot = large + index * SLOT_BYTES;
        long[] words = new long[TAGS_MAX / 2];
        for (int at = 0; at < Math.min(tags.length, TAGS_MAX); at++) {
            words[at / 2] |= (tags[at] & 0xffff_ffffL) << 32 * (at % 2);
        }
        lane.memory.store(slot + 8, number);
        lane.memory.store(slot + 16, words[0]);
        lane.memory.store(slot + 24, words[1]);
        lane.memory.store(slot, Math.max(System.nanoTime(), FILLING + 1));
        return new Operation(small, lane, index);
    }

    /** Index of a free slot, which is claimed; -1 if there is none. */
    private int claim(Lane lane) {
        Memory memory = lane.memory;
        int slots = (int) Math.min(memory.loadAcquire(small + Layout.SLOTS), SLOTS_MAX);
        int hint = (int) Math.min(memory.load(small + HINT), slots);
        int near = Math.min(hint + PROBES_MAX, slots);
        int index = claimIn(memory, hint, near);
        if (index < 0 && slots < SLOTS_MAX && reserveSlots(lane, slots)) {
            index = claimIn(memory, slots, slots + SLOTS_PER_PAGE);
        }
        if (index < 0) {
            index = claimIn(memory, near, slots);
        }
        if (index < 0) {
            index = claimIn(memory, 0, hint);
        }
        if (index >= 0) {
            memory.store(small + HINT, index + 1);
        }
        return index;
    }

    private boolean reserveSlots(Lane lane, int slots) {
        try {
            return Topdeck.file().reserveLarge(lane, large + slots * SLOT_BYTES, PAGE,
                    () -> lane.memory.raise(small + Layout.SLOTS, slots + SLOTS_PER_PAGE));
        } catch (MetricException error) {
            return false;
        }
    }

    private int claimIn(Memory memory, int from, int to) {
        for (int index = from; index < to; index++) {
            int start = large + index * SLOT_BYTES;
            if (memory.load(start) == 0 && memory.compareAndSet(start, 0, FILLING)) {
                return index;
            }
        }
        return -1;
    }

    /** An operation, in flight until its end. */
    public final class Operation implements AutoCloseable {
        private int table;
        private final Lane lane;
        private final int index;

        private Operation(int table, Lane lane, int index) {
            this.table = table;
            this.lane = lane;
            this.index = index;
        }

        /** Ends the operation, on any thread, but not on two at once; only the first call does. */
        public void end() {
            if (table < 0) {
                return;
            }
            if (lane != null) {
                lane.memory.store(large + index * SLOT_BYTES, 0);
                lane.memory.store(table + HINT, index);
            }
            // Counted in the lane of the thread that ends it.
            addCell(table + FLIGHT_ENDED, 1);
            table = -1;
        }

        @Override
        public void close() {
            end();
        }
    }
}
