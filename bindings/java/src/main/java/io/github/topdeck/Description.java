package io.github.topdeck;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/** Description of a metric. All but the name is optional. */
public final class Description {
    final String name;
    String unit = "";
    String help = "";
    Role role = Role.OTHER;
    Metric related;
    List<String[]> labels = new ArrayList<>();
    List<String> tags = List.of();
    long parameter;

    /** A name of 1 to 4,096 bytes. */
    public Description(String name) {
        this.name = name;
    }

    private Description(Description from, List<String[]> labels) {
        name = from.name;
        unit = from.unit;
        help = from.help;
        role = from.role;
        related = from.related;
        tags = from.tags;
        parameter = from.parameter;
        this.labels = labels;
    }

    /** Unit in UCUM: {@code ns}, {@code By}, {@code 1}. */
    public Description unit(String unit) {
        this.unit = unit;
        return this;
    }

    /** Help text. */
    public Description help(String help) {
        this.help = help;
        return this;
    }

    /** Adds a label. */
    public Description label(String name, String value) {
        labels.add(new String[] {name, value});
        return this;
    }

    /** Role of the metric. */
    public Description role(Role role) {
        this.role = role;
        return this;
    }

    /** Related metric of the role, such as the capacity of a usage. */
    public Description related(Metric related) {
        this.related = related;
        return this;
    }

    /** A copy with sorted labels, and other texts checked: what is invalid is an exception. */
    Description checked(List<String> tags, long parameter) throws MetricException {
        List<String[]> sorted = new ArrayList<>(labels);
        sorted.sort(Comparator.comparing(label -> label[0]));
        Description copy = new Description(this, sorted);
        copy.tags = tags;
        copy.parameter = parameter;
        if (name.isEmpty()) {
            throw invalid("metric name is empty");
        }
        for (int at = 0; at < sorted.size(); at++) {
            if (sorted.get(at)[0].isEmpty()) {
                throw invalid("label name is empty");
            }
            if (at > 0 && sorted.get(at)[0].equals(sorted.get(at - 1)[0])) {
                throw invalid("duplicate label");
            }
        }
        int longest = Math.max(utf8(name).length, Math.max(utf8(unit).length, utf8(help).length));
        if (Math.max(longest, encodeLabels(sorted).length) > Layout.STRING_MAX) {
            throw invalid("name, unit, help or labels exceed 4,096 bytes");
        }
        if (sorted.size() > Layout.LABELS_MAX) {
            throw invalid("more than 64 labels");
        }
        for (String tag : tags) {
            if (tag.isEmpty() || tag.indexOf(0) >= 0 || utf8(tag).length > Layout.STRING_MAX) {
                throw invalid("a tag name is empty, has a zero byte, or exceeds 4,096 bytes");
            }
        }
        if (tags.size() > Layout.TAGS_MAX) {
            throw invalid("more than four tags");
        }
        return copy;
    }

    /** The same metric with a label that stands for all others. */
    Description overflow() {
        return new Description(this, List.<String[]>of(new String[] {"overflow", "true"}));
    }

    boolean isOverflow() {
        return labels.size() == 1
                && labels.get(0)[0].equals("overflow")
                && labels.get(0)[1].equals("true");
    }

    private MetricException invalid(String reason) {
        return new MetricException("invalid metric \"" + name + "\": " + reason);
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** For each label the length of the name in two bytes, the name, and the same for the value. */
    static byte[] encodeLabels(List<String[]> labels) {
        var text = new java.io.ByteArrayOutputStream();
        for (String[] label : labels) {
            for (String part : label) {
                byte[] bytes = utf8(part);
                text.write(bytes.length);
                text.write(bytes.length >> 8);
                text.writeBytes(bytes);
            }
        }
        return text.toByteArray();
    }
}
