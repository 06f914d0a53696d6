package io.github.topdeck;

/** Layout of the metrics file, version 1: docs/formats/shm.md of topdeck. Sizes in bytes. */
final class Layout {
    private Layout() {}

    static final long MAGIC = 0x314b434544504f54L;
    static final long VERSION = 1;
    static final int HEADER_BYTES = 4096;
    static final int LANE_BYTES = 32;
    static final int LANES_MAX = 256;
    static final int ENTRY_BYTES = 64;
    static final int ENTRIES_MAX = 16_384;
    static final int STRING_MAX = 4096;
    static final int LABELS_MAX = 64;
    static final int TAGS_MAX = 4;
    /** Further series of a name are counted together, with the label overflow="true". */
    static final int SERIES_PER_NAME_MAX = 1000;

    static final int REGISTRY = HEADER_BYTES + LANES_MAX * LANE_BYTES;
    static final int STRINGS = REGISTRY + ENTRIES_MAX * ENTRY_BYTES;
    static final int STRINGS_BYTES = 4 << 20;
    static final int LANES = (STRINGS + STRINGS_BYTES + 0xffff) & ~0xffff;
    static final int LANE_STRIDE = 64 << 20;
    static final int SMALL_BYTES = 2 << 20;
    static final int PAGE = 4096;

    /** Offsets in the header. */
    static final int ID = 32;
    static final int BOOT = 48;
    static final int PID = 64;
    static final int PID_NAMESPACE = 72;
    static final int START_TICKS = 80;
    static final int UID = 88;
    static final int CREATED = 96;
    static final int CREATED_UNIX = 104;
    static final int STATE = 112;
    static final int ENDED = 120;
    static final int REGISTRY_COUNT = 144;
    static final int STRINGS_USED = 168;
    static final int LANES_USED = 200;
    static final int PROGRAM = 216;
    static final int COMMAND = 224;
    static final int REJECTED_SERIES = 232;
    static final int SHARED_LANE_THREADS = 240;
    static final int LOST_VALUES = 248;
    static final int HEADER_USED = 256;

    static final long STATE_LIVE = 1;
    static final long STATE_EXITED = 2;
    static final long STATE_REPLACED = 3;

    /** Small cells of a histogram. */
    static final int BEGUN = 0;
    static final int ZERO = 8;
    static final int SUM_LOW = 16;
    static final int SUM_HIGH = 24;
    static final int NOT_MIN = 32;
    static final int MAX = 40;
    static final int TOUCHED = 48;
    static final int SCALE = 5;
    static final int GROUP_BYTES = 8 << SCALE;
    static final int BUCKETS_BYTES = (2049 * 8 + 63) & ~63;

    /** Small cells of operations in flight, and their slots. */
    static final int STARTED = 0;
    static final int FLIGHT_ENDED = 8;
    static final int UNTRACKED = 16;
    static final int SLOTS = 24;
    static final int HINT = 32;
    static final int SLOT_BYTES = 32;
    static final int SLOTS_MAX = 16_384;
    static final long FILLING = 1;

    static final int TEXT_BYTES = 512;
    static final int TEXT_BUFFER_0 = 8;
    static final int TEXT_BUFFER_1 = 256;
    static final int TEXT_MAX = 240;
    static final int HEARTBEAT_BYTES = 16;

    /** Kinds of metrics, with the sizes of their cells. */
    enum Kind {
        COUNTER(1, 8, 8, 0),
        UP_DOWN(2, 8, 8, 0),
        GAUGE(3, 8, 8, 0),
        FLOAT_GAUGE(4, 8, 8, 0),
        TEXT(5, TEXT_BYTES, 8, 0),
        HISTOGRAM(6, 64, 64, BUCKETS_BYTES),
        IN_FLIGHT(7, 64, 64, SLOTS_MAX * SLOT_BYTES),
        HEARTBEAT(8, HEARTBEAT_BYTES, 8, 0);

        final int code;
        final int small;
        final int align;
        final int large;

        Kind(int code, int small, int align, int large) {
            this.code = code;
            this.small = small;
            this.align = align;
            this.large = large;
        }
    }
}
