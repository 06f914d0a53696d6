package io.github.topdeck;

import static io.github.topdeck.Layout.*;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** Series and strings of the file. The caller has the lock of the file. */
final class Registry {
    private record Entry(Cells cells, Kind kind, String unit) {}

    private final MetricsFile file;
    private final Map<String, Long> strings = new HashMap<>();
    private final Map<String, Entry> series = new HashMap<>();
    private final Map<String, Integer> seriesPerName = new HashMap<>();
    private final Map<Long, Integer> numbers = new HashMap<>();
    private int stringsUsed = 8;
    private int count;
    private int smallUsed;
    private int largeUsed = SMALL_BYTES;

    Registry(MetricsFile file) {
        this.file = file;
    }

    int smallUsed() {
        return smallUsed;
    }

    Cells findOrAdd(Description one, Kind kind) throws MetricException, IOException {
        String key = one.name + "\0" + latin1(Description.encodeLabels(one.labels));
        Entry found = series.get(key);
        if (found != null) {
            if (found.kind != kind || !found.unit.equals(one.unit)) {
                throw new MetricException("cannot register metric \"" + one.name
                        + "\": it exists with another kind or unit");
            }
            return found.cells;
        }
        int ofName = seriesPerName.getOrDefault(one.name, 0);
        if (ofName >= SERIES_PER_NAME_MAX && !one.isOverflow()) {
            file.head().add(REJECTED_SERIES, 1);
            return findOrAdd(one.overflow(), kind);
        }
        Cells cells = add(one, kind);
        series.put(key, new Entry(cells, kind, one.unit));
        seriesPerName.put(one.name, ofName + 1);
        return cells;
    }

    private Cells add(Description one, Kind kind) throws MetricException, IOException {
        int small = (smallUsed + kind.align - 1) & -kind.align;
        if (count >= ENTRIES_MAX) {
            throw full(one, "16,384 series");
        }
        if (small + kind.small > SMALL_BYTES) {
            throw full(one, "2 MiB of cells");
        }
        if (largeUsed + kind.large > LANE_STRIDE) {
            throw full(one, "62 MiB of buckets, those of 3,900 histograms");
        }
        byte[][] texts = {
            Description.utf8(one.name), Description.encodeLabels(one.labels),
            Description.utf8(one.unit), Description.utf8(one.help),
            Description.utf8(String.join("\0", one.tags))
        };
        long[] words = new long[texts.length];
        for (int at = 0; at < texts.length; at++) {
            words[at] = intern(texts[at]);
            if (words[at] == 0 && texts[at].length > 0) {
                throw full(one, "4 MiB of names and labels");
            }
        }
        file.reserveEntries(REGISTRY + (count + 1) * ENTRY_BYTES);
        Topdeck.extendShared(file, small + kind.small);
        Cells cells = new Cells(small, largeUsed);
        Integer link = one.related == null ? null : numbers.get(one.related.cells().word());
        long[] entry = {
            kind.code | (long) one.role.ordinal() << 8, words[0], words[1], words[2], words[3],
            cells.word(), link == null ? 0 : link + 1,
            kind == Kind.IN_FLIGHT ? words[4] : one.parameter
        };
        int offset = REGISTRY + count * ENTRY_BYTES;
        for (int word = 1; word < entry.length; word++) {
            file.head().store(offset + word * 8, entry[word]);
        }
        // A reader that sees the first word sees the rest, and the strings.
        file.head().store(offset, entry[0]);
        file.head().store(REGISTRY_COUNT, count + 1);
        numbers.put(cells.word(), count);
        count++;
        smallUsed = small + kind.small;
        largeUsed += kind.large;
        return cells;
    }

    private MetricException full(Description one, String limit) {
        file.head().add(REJECTED_SERIES, 1);
        return new MetricException("cannot register metric \"" + one.name
                + "\": metric table full, limit " + limit);
    }

    /** Position of a string in words from the start of the strings; 0 without space. */
    long intern(byte[] bytes) throws IOException {
        if (bytes.length == 0) {
            return 0;
        }
        String key = latin1(bytes);
        Long found = strings.get(key);
        if (found != null) {
            return found;
        }
        int at = stringsUsed;
        int end = at + 8 + ((bytes.length + 7) & -8);
        if (end > STRINGS_BYTES) {
            return 0;
        }
        file.reserveStrings(STRINGS + end);
        file.head().store(STRINGS + at, bytes.length);
        for (int from = 0; from < bytes.length; from += 8) {
            file.head().store(STRINGS + at + 8 + from, word(bytes, from, bytes.length));
        }
        file.head().store(STRINGS_USED, end);
        stringsUsed = end;
        strings.put(key, (long) at / 8);
        return at / 8;
    }

    /** Eight bytes as a word, the first one least significant; zeros beyond the end. */
    static long word(byte[] bytes, int from, int end) {
        long word = 0;
        for (int at = from; at < Math.min(from + 8, end); at++) {
            word |= (bytes[at] & 0xffL) << 8 * (at - from);
        }
        return word;
    }

    private static String latin1(byte[] bytes) {
        return new String(bytes, StandardCharsets.ISO_8859_1);
    }
}
