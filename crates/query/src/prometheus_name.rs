//! Names that Prometheus gives to the metrics and labels of OpenTelemetry.
//!
//! `http.server.request.duration` in seconds is `http_server_request_duration_seconds`, its label
//! `http.route` is `http_route`: characters outside `[a-zA-Z0-9:]` become underscores, the unit is
//! appended, a counter ends in `_total`, a gauge of the unit 1 in `_ratio`. topdeck stores the unit
//! 1 as no unit, so a gauge without a unit has both names. Names of counters that are series of a
//! classic histogram (`_count`, `_sum`, `_bucket`) have no suffix appended.
//!
//! Prometheus' base unit of time is the second. A metric in ns, us or ms is also found by the name
//! that it would have in seconds, and answers in seconds under that name: `rpc.took` in ms is
//! `rpc_took_milliseconds` in ms and `rpc_took_seconds` in s. A metric that has its unit in its own
//! name (`rpc_ms`, as Prometheus sends it) is found as that only.
//!
//! Source: prometheus/otlptranslator, `metric_namer.go`, `label_namer.go`, `units.go`; the default
//! strategy of Prometheus 3, `UnderscoreEscapingWithSuffixes`.

use model::{Series, SeriesKind};

use crate::labels::{LabelSet, NAME};

/// Suffixes of the series of a classic histogram.
const CLASSIC_SUFFIXES: [&str; 3] = ["_bucket", "_count", "_sum"];

/// Units and their words in names.
const UNIT_WORDS: [(&str, &str); 30] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("B", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("kBy", "kilobytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("°C", "celsius"),
    ("Hz", "hertz"),
    ("1", ""),
    ("%", "percent"),
    ("", ""),
];

/// Units after a slash and their words in names.
const PER_UNIT_WORDS: [(&str, &str); 7] = [
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

/// Unit that the last word of a name says, as `s` of `rpc_took_seconds`; empty if it says none.
pub(crate) fn unit_of_name(name: &str) -> &'static str {
    let Some((_, last)) = name.rsplit_once('_').filter(|(_, word)| !word.is_empty()) else {
        return "";
    };
    UNIT_WORDS.iter().find(|(_, word)| *word == last).map_or("", |(unit, _)| unit)
}

/// Prometheus' name of a metric.
fn prometheus_name(name: &str, unit: &str, kind: SeriesKind) -> String {
    let mut words: Vec<String> = tokens(name).map(str::to_owned).collect();
    let is_counter = matches!(kind, SeriesKind::Counter(_));
    let is_classic = CLASSIC_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    if !(is_counter && is_classic) {
        add_unit(&mut words, unit);
        if is_counter {
            words.retain(|word| word != "total");
            words.push("total".to_owned());
        }
    }
    let joined = words.join("_");
    match joined.starts_with(|first: char| first.is_ascii_digit()) {
        true => format!("_{joined}"),
        false => joined,
    }
}

fn add_unit(words: &mut Vec<String>, unit: &str) {
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let word = |unit: &str, table: &[(&str, &str)]| {
        let unit = unit.trim();
        // An annotation such as {request} is no unit.
        if unit.contains(['{', '}']) {
            return String::new();
        }
        let known = table.iter().find(|(known, _)| *known == unit);
        known.map_or_else(|| tokens(unit).collect::<Vec<_>>().join("_"), |of| of.1.to_owned())
    };
    let (main, per) = (word(main, &UNIT_WORDS), word(per, &PER_UNIT_WORDS));
    let is_new = |word: &String| !word.is_empty() && !words.contains(word);
    let (main, per) = (Some(main).filter(is_new), Some(per).filter(is_new));
    words.extend(main);
    words.extend(per.into_iter().flat_map(|per| ["per".to_owned(), per]));
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != ':').filter(|word| !word.is_empty())
}

/// Prometheus' name of a label.
fn prometheus_label(name: &str) -> String {
    if is_legal_label(name) {
        return name.to_owned();
    }
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        match c.is_ascii_alphanumeric() {
            true => text.push(c),
            false if text.ends_with('_') => {}
            false => text.push('_'),
        }
    }
    match text.starts_with(|first: char| first.is_ascii_digit()) {
        true => format!("key_{text}"),
        false => text,
    }
}

fn is_legal_label(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Prometheus' labels of a series: translated names, and `job` and `instance` of the service.
fn prometheus_labels(labels: &LabelSet) -> LabelSet {
    let service = ["service.namespace", "service.name"];
    let has_service = !labels.get("service.name").is_empty();
    if !has_service && labels.iter().all(|(name, _)| is_legal_label(name)) {
        return labels.clone();
    }
    let translated = labels.iter().map(|(name, value)| (prometheus_label(name), value));
    let mut all = LabelSet::new(translated);
    if has_service && all.get("job").is_empty() {
        let parts = service.iter().map(|name| labels.get(name)).filter(|part| !part.is_empty());
        all = all.with("job", &parts.collect::<Vec<_>>().join("/"));
    }
    if all.get("instance").is_empty() {
        all = all.with("instance", labels.get("service.instance.id"));
    }
    all
}

/// The names of Prometheus under which a series is listed besides its own: with translated name and
/// labels if its own name is none of Prometheus, and in seconds if it has another unit of time.
pub fn prometheus_series(series: &Series) -> impl Iterator<Item = Series> {
    let pairs = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let is_legal = is_legal_name(series.name());
    let seconds = units_per_second(series.name(), series.unit()).map(|_| "s");
    let own = (!is_legal).then(|| series.unit());
    let labels =
        (own.is_some() || seconds.is_some()).then(|| prometheus_labels(&LabelSet::new(pairs)));
    own.into_iter().chain(seconds).zip(std::iter::repeat(labels)).filter_map(|(unit, labels)| {
        let name = prometheus_name(series.name(), unit, series.kind());
        labeled_series(&labels?.with(NAME, &name), unit, series.kind())
    })
}

fn is_legal_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

/// Number of units in a second, if a metric has a name in seconds besides: its unit is a smaller
/// one of time, and its name has neither that unit nor seconds in it.
fn units_per_second(name: &str, unit: &str) -> Option<f64> {
    let per_second = match unit {
        "ms" => 1e3,
        "us" => 1e6,
        "ns" => 1e9,
        _ => return None,
    };
    let (_, word) = UNIT_WORDS.iter().find(|(known, _)| *known == unit)?;
    let is_unit = |part: &str| part == unit || part == *word || part == "seconds";
    (!tokens(name).any(is_unit)).then_some(per_second)
}

/// A series with labels, if they are valid.
pub(crate) fn labeled_series(labels: &LabelSet, unit: &str, kind: SeriesKind) -> Option<Series> {
    let pairs = labels.iter().filter(|(name, _)| *name != NAME);
    Series::new(labels.name(), kind).with_unit(unit).with_labels(pairs).validate().ok()
}

/// Regex of the names whose translation may be `name`, with any unit and suffixes; `None` if only
/// `name` itself.
pub(crate) fn untranslated_names(name: &str) -> Option<String> {
    /// Words at the end that may be a unit and suffixes: `meters_per_second_total_bucket`.
    const SUFFIX_WORDS_MAX: usize = 6;
    let is_legal = is_legal_name(name);
    let words: Vec<&str> = tokens(name).collect();
    if !is_legal || words.is_empty() || !name.contains('_') {
        return None;
    }
    let fixed = words.len().saturating_sub(SUFFIX_WORDS_MAX).max(1);
    let separator = "[^a-zA-Z0-9:]";
    let mut regex = format!("{separator}*{}", words[..fixed].join(&format!("{separator}+")));
    for word in &words[fixed..] {
        regex += &format!("(?:{separator}+{word}");
    }
    regex += &")?".repeat(words.len() - fixed);
    Some(regex + separator + "*")
}

/// Labels under which a stored series is found, and the unit of its values under them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeriesTranslation {
    pub(crate) labels: LabelSet,
    pub(crate) unit: String,
    /// Number by which stored values are divided.
    pub(crate) divisor: f64,
}

/// The labels under which a series is found, besides those that are stored: with its own name and
/// translated labels, with its translated name, and with that in seconds.
pub(crate) fn translations(
    labels: &LabelSet,
    unit: &str,
    kind: SeriesKind,
) -> Vec<SeriesTranslation> {
    let translated = prometheus_labels(labels);
    let name = prometheus_name(labels.name(), unit, kind);
    let mut all = vec![translated.clone(), translated.with(NAME, &name)];
    if kind == SeriesKind::Gauge && unit.is_empty() {
        all.push(translated.with(NAME, &format!("{name}_ratio")));
    }
    all.dedup();
    let as_stored = |labels| SeriesTranslation { labels, unit: unit.to_owned(), divisor: 1.0 };
    let mut all: Vec<SeriesTranslation> = all.into_iter().map(as_stored).collect();
    if let Some(divisor) = units_per_second(labels.name(), unit) {
        let labels = translated.with(NAME, &prometheus_name(labels.name(), "s", kind));
        all.push(SeriesTranslation { labels, unit: "s".to_owned(), divisor });
    }
    all
}

#[cfg(test)]
mod tests {
    use hist::codec::header::Temporality::Cumulative;
    use model::Selector;

    use super::*;

    const COUNTER: SeriesKind = SeriesKind::Counter(Cumulative);
    const HISTOGRAM: SeriesKind = SeriesKind::Histogram(Cumulative);

    /// Expected names are those of otlptranslator, `metric_namer_test.go`.
    #[track_caller]
    fn check(name: &str, unit: &str, kind: SeriesKind, expected: &str) {
        assert_eq!(prometheus_name(name, unit, kind), expected);
        let Some(regex) = untranslated_names(expected) else {
            assert_eq!(name, expected);
            return;
        };
        let selector = Selector::label_matches(model::selector::NAME, &regex).unwrap();
        let series = model::Series::new(name, kind).validate().unwrap();
        assert!(selector.matches(&series), "{regex} does not match {name}");
    }

    #[test]
    fn names_are_translated_as_by_prometheus() {
        let request = "http.server.request.duration";
        check(request, "s", HISTOGRAM, "http_server_request_duration_seconds");
        check("system.disk.io", "By", COUNTER, "system_disk_io_bytes_total");
        check("system.network.packets", "{packets}", COUNTER, "system_network_packets_total");
        check("system.filesystem.usage", "B", SeriesKind::Gauge, "system_filesystem_usage_bytes");
        check("fan.speed", "m/s", SeriesKind::Gauge, "fan_speed_meters_per_second");
        check("memory_bytes", "By", SeriesKind::Gauge, "memory_bytes");
        check("requests_total", "", COUNTER, "requests_total");
        check("rpc_duration_seconds_count", "", COUNTER, "rpc_duration_seconds_count");
        check("up", "", SeriesKind::Gauge, "up");
        check("3.5.frames", "", SeriesKind::Gauge, "_3_5_frames");
        check("jvm.gc.pause", "ms", HISTOGRAM, "jvm_gc_pause_milliseconds");
    }

    #[test]
    fn labels_are_translated_as_by_prometheus() {
        assert_eq!(prometheus_label("http.route"), "http_route");
        assert_eq!(prometheus_label("3rd-party"), "key_3rd_party");
        assert_eq!(prometheus_label("a__b"), "a__b");
        let stored = LabelSet::new([
            ("service.name", "cart"),
            ("service.namespace", "shop"),
            ("service.instance.id", "i-7"),
        ]);
        let translated = prometheus_labels(&stored);
        assert_eq!(translated.get("job"), "shop/cart");
        assert_eq!(translated.get("instance"), "i-7");
        assert_eq!(translated.get("service_name"), "cart");
    }

    #[test]
    fn gauge_without_unit_has_a_ratio_name_too() {
        let labels = LabelSet::new([(NAME, "cpu.utilization")]);
        let names = translations(&labels, "", SeriesKind::Gauge);
        let names: Vec<&str> = names.iter().map(|name| name.labels.name()).collect();
        assert_eq!(names, ["cpu.utilization", "cpu_utilization", "cpu_utilization_ratio"]);
    }

    #[track_caller]
    fn check_units(name: &str, unit: &str, kind: SeriesKind, expected: &[(&str, &str, f64)]) {
        let found = translations(&LabelSet::new([(NAME, name)]), unit, kind);
        let found: Vec<_> =
            found.iter().map(|of| (of.labels.name(), of.unit.as_str(), of.divisor)).collect();
        assert_eq!(found, expected);
        // Every name is found.
        for (expected, ..) in expected.iter().filter(|(expected, ..)| *expected != name) {
            let regex = untranslated_names(expected).unwrap();
            let selector = Selector::label_matches(model::selector::NAME, &regex).unwrap();
            assert!(selector.matches(&model::Series::new(name, kind).validate().unwrap()));
        }
    }

    #[test]
    fn metric_in_another_unit_of_time_has_a_name_in_seconds_too() {
        let own = |name, unit| (name, unit, 1.0);
        check_units(
            "rpc.took",
            "ms",
            HISTOGRAM,
            &[
                own("rpc.took", "ms"),
                own("rpc_took_milliseconds", "ms"),
                ("rpc_took_seconds", "s", 1e3),
            ],
        );
        check_units(
            "http_request_duration",
            "ns",
            HISTOGRAM,
            &[
                own("http_request_duration", "ns"),
                own("http_request_duration_nanoseconds", "ns"),
                ("http_request_duration_seconds", "s", 1e9),
            ],
        );
        check_units(
            "cpu.time",
            "us",
            COUNTER,
            &[
                own("cpu.time", "us"),
                own("cpu_time_microseconds_total", "us"),
                ("cpu_time_seconds_total", "s", 1e6),
            ],
        );
    }

    #[test]
    fn metric_of_prometheus_with_its_unit_in_its_name_has_no_other() {
        check_units("rpc_milliseconds", "ms", HISTOGRAM, &[("rpc_milliseconds", "ms", 1.0)]);
        let both = [("rpc_ms", "ms", 1.0), ("rpc_ms_milliseconds", "ms", 1.0)];
        check_units("rpc_ms", "ms", HISTOGRAM, &both);
        check_units("rpc_seconds", "s", HISTOGRAM, &[("rpc_seconds", "s", 1.0)]);
    }
}
