//! Scrape text of ten exporters over 40 minutes: Prometheus text with timestamps, always the same.
//!
//! Names, types and labels are those of common exporters and client libraries; `job` and `instance`
//! are in the text, as a federating server would send them. Histograms are classic. Each second
//! instance restarts once, and one pod ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// 2024-01-01T00:00:00Z.
pub(super) const START_SECONDS: i64 = 1_704_067_200;
const SCRAPES: i64 = 40;
const INTERVAL_SECONDS: i64 = 60;
pub(super) const END_SECONDS: i64 = START_SECONDS + (SCRAPES - 1) * INTERVAL_SECONDS;
/// Scrape before which the second instances restart.
const RESTART: i64 = 31;
/// Bounds of the default buckets of client libraries.
const BOUNDS: [&str; 12] =
    ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];

type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text.
pub(super) fn scrape_page() -> String {
    let mut page = ScrapePage::default();
    page.node();
    page.go();
    page.jvm();
    page.postgres();
    page.nginx();
    page.service();
    page.kafka();
    page.redis();
    page.kubernetes();
    page.text()
}

/// Lines by metric.
#[derive(Default)]
struct ScrapePage {
    metrics: BTreeMap<String, (&'static str, String)>,
    /// Target that is written.
    target: (&'static str, String),
    /// Whether the target restarts.
    restarts: bool,
}

/// Number in [0, 1) of a series and a scrape: splitmix64 of an FNV hash.
fn noise(seed: &str, scrape: i64) -> f64 {
    let hash = seed.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut z =
        hash.wrapping_add((scrape as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

impl ScrapePage {
    fn text(self) -> String {
        let mut text = String::new();
        for (name, (kind, lines)) in self.metrics {
            writeln!(text, "# TYPE {name} {kind}").unwrap();
            text += &lines;
        }
        text
    }

    fn target(&mut self, job: &'static str, instance: impl Into<String>, restarts: bool) {
        (self.target, self.restarts) = ((job, instance.into()), restarts);
        self.gauge("up", &[], |_| 1.0);
    }

    /// Labels of a series of the target.
    fn labels(&self, labels: Labels<'_>) -> String {
        let (job, instance) = (self.target.0, &*self.target.1);
        let mut text = format!("job=\"{job}\",instance=\"{instance}\"");
        for (name, value) in labels {
            write!(text, ",{name}=\"{value}\"").unwrap();
        }
        text
    }

    fn line(&mut self, family: (&str, &'static str), line: &str, scrape: i64, value: f64) {
        let millis = (START_SECONDS + scrape * INTERVAL_SECONDS) * 1000;
        let (_, lines) =
            self.metrics.entry(family.0.to_owned()).or_insert_with(|| (family.1, String::new()));
        writeln!(lines, "{line} {value} {millis}").unwrap();
    }

    fn gauge(&mut self, name: &str, labels: Labels<'_>, value: impl Fn(i64) -> f64) {
        let line = format!("{name}{{{}}}", self.labels(labels));
        for scrape in 0..SCRAPES {
            self.line((name, "gauge"), &line, scrape, value(scrape));
        }
    }

    /// A gauge that varies by a tenth around a level.
    fn level(&mut self, name: &str, labels: Labels<'_>, level: f64) {
        let seed = format!("{name}{}", self.labels(labels));
        self.gauge(name, labels, |scrape| {
            (level * (0.95 + 0.1 * noise(&seed, scrape)) * 1e3).round() / 1e3
        });
    }

    /// A counter with a mean rate per second.
    fn counter(&mut self, name: &str, labels: Labels<'_>, rate: f64) {
        let line = format!("{name}{{{}}}", self.labels(labels));
        for (scrape, value) in self.totals(&line, rate, 1e3) {
            self.line((name, "counter"), &line, scrape, value);
        }
    }

    /// Totals of each scrape, rounded to a fraction of 1.
    fn totals(&self, seed: &str, rate: f64, fraction: f64) -> Vec<(i64, f64)> {
        let mut total = 1000.0 * noise(seed, -1);
        let step = |scrape: i64| {
            total = if self.restarts && scrape == RESTART { 0.0 } else { total };
            total += rate * INTERVAL_SECONDS as f64 * (0.5 + noise(seed, scrape));
            (scrape, (total * fraction).round() / fraction)
        };
        (0..SCRAPES).map(step).collect()
    }

    /// A classic histogram: requests per second, and the mean of an exponential distribution.
    fn histogram(&mut self, name: &str, labels: Labels<'_>, (rate, mean): (f64, f64)) {
        let labels = self.labels(labels);
        let seed = format!("{name}{labels}");
        let (mut counts, mut sum) = ([0_u64; BOUNDS.len()], 0.0);
        for scrape in 0..SCRAPES {
            if self.restarts && scrape == RESTART {
                (counts, sum) = ([0; BOUNDS.len()], 0.0);
            }
            let requests = (rate * INTERVAL_SECONDS as f64 * (0.5 + noise(&seed, scrape))) as i64;
            for request in 0..requests {
                let value = -mean * (1.0 - noise(&seed, scrape * 10_000 + request)).ln();
                // Multiples of 2⁻²⁰ s, whose sum is exact.
                let value = (value * 1_048_576.0).round() / 1_048_576.0;
                sum += value;
                for (count, bound) in counts.iter_mut().zip(BOUNDS) {
                    *count += u64::from(value <= bound.parse().unwrap());
                }
            }
            let family = (name, "histogram");
            for (bound, count) in BOUNDS.iter().zip(counts) {
                let line = format!("{name}_bucket{{{labels},le=\"{bound}\"}}");
                self.line(family, &line, scrape, count as f64);
            }
            self.line(family, &format!("{name}_sum{{{labels}}}"), scrape, sum);
            let count = counts[BOUNDS.len() - 1] as f64;
            self.line(family, &format!("{name}_count{{{labels}}}"), scrape, count);
        }
    }

    /// A summary with quantiles around a level.
    fn summary(&mut self, name: &str, labels: Labels<'_>, (rate, level): (f64, f64)) {
        let (own, family) = (self.labels(labels), (name, "summary"));
        for (quantile, factor) in [("0", 0.2), ("0.5", 1.0), ("0.99", 4.0), ("1", 9.0)] {
            let line = format!("{name}{{{own},quantile=\"{quantile}\"}}");
            for scrape in 0..SCRAPES {
                let value = level * factor * (0.9 + 0.2 * noise(&line, scrape));
                self.line(family, &line, scrape, (value * 1e6).round() / 1e6);
            }
        }
        for (suffix, rate, fraction) in [("_sum", rate * level, 1e6), ("_count", rate, 1.0)] {
            let line = format!("{name}{suffix}{{{own}}}");
            for (scrape, value) in self.totals(&line, rate, fraction) {
                self.line(family, &line, scrape, value);
            }
        }
    }

    fn node(&mut self) {
        for (instance, restarts) in [("web-1:9100", false), ("web-2:9100", true)] {
            self.target("node", instance, restarts);
            for cpu in ["0", "1"] {
                for (mode, share) in
                    [("idle", 0.7), ("iowait", 0.05), ("user", 0.15), ("system", 0.1)]
                {
                    self.counter("node_cpu_seconds_total", &[("cpu", cpu), ("mode", mode)], share);
                }
            }
            for (name, level) in [("load1", 1.2), ("load5", 1.0), ("load15", 0.9)] {
                self.level(&format!("node_{name}"), &[], level);
            }
            for (name, level) in
                [("MemTotal", 8.4e9), ("MemAvailable", 3.1e9), ("Buffers", 2e8), ("Cached", 2e9)]
            {
                let name = format!("node_memory_{name}_bytes");
                match level == 8.4e9 {
                    true => self.gauge(&name, &[], |_| level),
                    false => self.level(&name, &[], level),
                }
            }
            for (device, mount) in [("/dev/vda1", "/"), ("/dev/vdb", "/srv"), ("tmpfs", "/run")] {
                let kind = if device == "tmpfs" { "tmpfs" } else { "ext4" };
                let labels = [("device", device), ("fstype", kind), ("mountpoint", mount)];
                self.gauge("node_filesystem_size_bytes", &labels, |_| 1e11);
                self.gauge("node_filesystem_avail_bytes", &labels, |at| 4e10 - 1e7 * at as f64);
            }
            for device in ["vda", "vdb"] {
                let labels = [("device", device)];
                self.counter("node_disk_read_bytes_total", &labels, 1.2e6);
                self.counter("node_disk_written_bytes_total", &labels, 3.4e6);
                self.counter("node_disk_io_time_seconds_total", &labels, 0.2);
                self.counter("node_disk_io_time_weighted_seconds_total", &labels, 0.5);
            }
            for device in ["eth0", "lo"] {
                let labels = [("device", device)];
                self.counter("node_network_receive_bytes_total", &labels, 2e5);
                self.counter("node_network_transmit_bytes_total", &labels, 3e5);
                self.counter("node_network_receive_drop_total", &labels, 0.01);
            }
            self.counter("node_vmstat_pgmajfault", &[], 0.7);
            self.gauge("node_boot_time_seconds", &[], |_| START_SECONDS as f64 - 86_400.0);
            let info = [("nodename", &instance[..5]), ("release", "6.12.0")];
            self.gauge("node_uname_info", &info, |_| 1.0);
        }
    }

    fn go(&mut self) {
        for (instance, restarts) in [("cart-1:8080", false), ("cart-2:8080", true)] {
            self.target("cart", instance, restarts);
            self.level("go_goroutines", &[], 120.0);
            self.level("go_threads", &[], 14.0);
            self.level("go_memstats_alloc_bytes", &[], 3.2e7);
            self.level("go_memstats_heap_inuse_bytes", &[], 4.1e7);
            self.level("go_memstats_next_gc_bytes", &[], 6e7);
            self.counter("go_memstats_alloc_bytes_total", &[], 4e6);
            self.counter("go_memstats_mallocs_total", &[], 5e4);
            self.summary("go_gc_duration_seconds", &[], (0.3, 0.0004));
            self.counter("process_cpu_seconds_total", &[], 0.4);
            self.level("process_resident_memory_bytes", &[], 8e7);
            self.level("process_open_fds", &[], 40.0);
            self.gauge("process_max_fds", &[], |_| 1024.0);
            let version = if restarts { "go1.25.1" } else { "go1.26.0" };
            self.gauge("go_info", &[("version", version)], |_| 1.0);
        }
    }

    fn jvm(&mut self) {
        for (instance, restarts) in [("orders-1:9090", false), ("orders-2:9090", true)] {
            self.target("orders", instance, restarts);
            for (area, id) in
                [("heap", "G1 Eden Space"), ("heap", "G1 Old Gen"), ("nonheap", "Metaspace")]
            {
                let labels = [("area", area), ("id", id)];
                self.level("jvm_memory_used_bytes", &labels, 1.5e8);
                self.level("jvm_memory_committed_bytes", &labels, 3e8);
                let limit = if id == "G1 Old Gen" { 1e9 } else { -1.0 };
                self.gauge("jvm_memory_max_bytes", &labels, |_| limit);
            }
            for (action, cause) in
                [("end of minor GC", "G1 Evacuation Pause"), ("end of major GC", "System.gc()")]
            {
                let labels = [("action", action), ("cause", cause)];
                self.summary("jvm_gc_pause_seconds", &labels, (0.5, 0.02));
                self.level("jvm_gc_pause_seconds_max", &labels, 0.09);
            }
            for state in ["runnable", "blocked", "timed-waiting"] {
                self.level("jvm_threads_states_threads", &[("state", state)], 12.0);
            }
            self.level("jvm_threads_live_threads", &[], 42.0);
            self.level("jvm_classes_loaded_classes", &[], 9100.0);
            self.level("process_cpu_usage", &[], 0.2);
            for (uri, status) in [("/orders", "200"), ("/orders", "500"), ("/pay", "200")] {
                let rate = if status == "500" { 0.1 } else { 2.0 };
                let labels = [("method", "GET"), ("status", status), ("uri", uri)];
                self.histogram("http_server_requests_seconds", &labels, (rate, 0.08));
            }
            self.histogram("hikaricp_connections_usage_seconds", &[], (1.5, 0.01));
        }
    }

    fn postgres(&mut self) {
        self.target("postgres", "db-1:9187", false);
        self.gauge("pg_up", &[], |_| 1.0);
        self.gauge("pg_settings_max_connections", &[], |_| 200.0);
        for database in ["shop", "audit"] {
            let labels = [("datname", database)];
            self.counter("pg_stat_database_xact_commit", &labels, 90.0);
            self.counter("pg_stat_database_xact_rollback", &labels, 1.5);
            self.counter("pg_stat_database_blks_hit", &labels, 8000.0);
            self.counter("pg_stat_database_blks_read", &labels, 120.0);
            self.counter("pg_stat_database_tup_fetched", &labels, 700.0);
            self.counter("pg_stat_database_tup_inserted", &labels, 30.0);
            self.counter("pg_stat_database_deadlocks", &labels, 0.01);
            self.counter("pg_stat_database_temp_bytes", &labels, 1000.0);
            self.level("pg_database_size_bytes", &labels, 5e9);
            for state in ["active", "idle", "idle in transaction"] {
                self.level("pg_stat_activity_count", &[labels[0], ("state", state)], 9.0);
            }
            for mode in ["accesssharelock", "exclusivelock"] {
                self.level("pg_locks_count", &[labels[0], ("mode", mode)], 4.0);
            }
        }
        self.level("pg_replication_lag_seconds", &[], 0.4);
        self.counter("pg_stat_bgwriter_checkpoints_timed_total", &[], 0.003);
        self.counter("pg_stat_bgwriter_buffers_backend_total", &[], 5.0);
    }

    fn nginx(&mut self) {
        self.target("nginx", "edge-1:9113", true);
        self.gauge("nginx_up", &[], |_| 1.0);
        for (name, level) in
            [("active", 80.0), ("reading", 3.0), ("writing", 9.0), ("waiting", 68.0)]
        {
            self.level(&format!("nginx_connections_{name}"), &[], level);
        }
        self.counter("nginx_connections_accepted", &[], 20.0);
        self.counter("nginx_connections_handled", &[], 19.9);
        self.counter("nginx_http_requests_total", &[], 140.0);
        for (host, status, rate) in
            [("shop", "200", 5.0), ("shop", "502", 0.2), ("blog", "200", 2.0), ("blog", "404", 0.5)]
        {
            let labels = [("host", host), ("status", status)];
            self.counter("nginx_ingress_controller_requests", &labels, rate);
            let name = "nginx_ingress_controller_request_duration_seconds";
            self.histogram(name, &labels, (rate, 0.12));
        }
    }

    fn service(&mut self) {
        for (instance, restarts) in [("shop-1:8080", false), ("shop-2:8080", true)] {
            self.target("shop", instance, restarts);
            for (route, code, rate, mean) in [
                ("/cart", "200", 3.0, 0.06),
                ("/cart", "500", 0.1, 0.4),
                ("/search", "200", 2.0, 0.3),
                ("/search", "429", 0.2, 0.002),
                ("/healthz", "200", 0.2, 0.001),
            ] {
                let labels = [("code", code), ("handler", route)];
                self.counter("http_requests_total", &labels, rate);
                self.histogram("http_request_duration_seconds", &labels, (rate, mean));
            }
            self.level("http_requests_in_flight", &[], 3.0);
        }
    }

    fn kafka(&mut self) {
        for (instance, restarts) in [("kafka-1:9308", false), ("kafka-2:9308", true)] {
            self.target("kafka", instance, restarts);
            for topic in ["orders", "mails"] {
                let labels = [("topic", topic)];
                let server = "kafka_server_brokertopicmetrics";
                self.counter(&format!("{server}_messagesin_total"), &labels, 300.0);
                self.counter(&format!("{server}_bytesin_total"), &labels, 6e4);
                self.counter(&format!("{server}_bytesout_total"), &labels, 9e4);
                for partition in ["0", "1"] {
                    let labels = [labels[0], ("partition", partition)];
                    self.counter("kafka_topic_partition_current_offset", &labels, 150.0);
                    let labels = [labels[0], labels[1], ("consumergroup", "billing")];
                    self.level("kafka_consumergroup_lag", &labels, 240.0);
                }
            }
            self.level("kafka_controller_kafkacontroller_activecontrollercount", &[], 0.5);
            self.gauge("kafka_server_replicamanager_underreplicatedpartitions", &[], |at| {
                f64::from(u8::from(at % 10 > 7))
            });
            for request in ["Produce", "FetchConsumer"] {
                let labels = [("request", request)];
                self.histogram("kafka_network_request_time_seconds", &labels, (2.0, 0.015));
            }
        }
    }

    fn redis(&mut self) {
        for (instance, restarts) in [("redis-1:9121", false), ("redis-2:9121", true)] {
            self.target("redis", instance, restarts);
            self.gauge("redis_up", &[], |_| 1.0);
            self.level("redis_connected_clients", &[], 33.0);
            self.level("redis_blocked_clients", &[], 1.0);
            self.level("redis_memory_used_bytes", &[], 2.5e8);
            self.gauge("redis_memory_max_bytes", &[], |_| 5e8);
            self.counter("redis_commands_processed_total", &[], 500.0);
            self.counter("redis_keyspace_hits_total", &[], 300.0);
            self.counter("redis_keyspace_misses_total", &[], 40.0);
            self.counter("redis_evicted_keys_total", &[], 0.5);
            self.counter("redis_expired_keys_total", &[], 3.0);
            for command in ["get", "set", "hgetall"] {
                let labels = [("cmd", command)];
                self.counter("redis_commands_total", &labels, 150.0);
                self.counter("redis_commands_duration_seconds_total", &labels, 0.003);
                self.histogram("redis_commands_latency_seconds", &labels, (3.0, 0.004));
            }
            for database in ["db0", "db1"] {
                self.level("redis_db_keys", &[("db", database)], 120_000.0);
                self.level("redis_db_keys_expiring", &[("db", database)], 30_000.0);
            }
        }
    }

    fn kubernetes(&mut self) {
        self.target("kube-state-metrics", "ksm:8080", false);
        for (pod, namespace) in [("cart-7d9", "shop"), ("cart-8f1", "shop"), ("mail-55c", "mail")] {
            let labels = [("namespace", namespace), ("pod", pod)];
            for phase in ["Pending", "Running", "Failed"] {
                let value = f64::from(u8::from(phase == "Running"));
                let labels = [labels[0], labels[1], ("phase", phase)];
                self.gauge("kube_pod_status_phase", &labels, |_| value);
            }
            let container = [labels[0], labels[1], ("container", "app")];
            self.counter("kube_pod_container_status_restarts_total", &container, 0.001);
            for (resource, unit, value) in [("cpu", "core", 0.5), ("memory", "byte", 2.7e8)] {
                let labels =
                    [labels[0], labels[1], container[2], ("resource", resource), ("unit", unit)];
                self.gauge("kube_pod_container_resource_requests", &labels, |_| value);
                self.gauge("kube_pod_container_resource_limits", &labels, |_| value * 2.0);
            }
            self.gauge("kube_pod_info", &[labels[0], labels[1], ("node", "web-1")], |_| 1.0);
        }
        self.target("kubelet", "web-1:10250", false);
        for (pod, namespace, scrapes) in
            [("cart-7d9", "shop", 40), ("cart-8f1", "shop", 32), ("mail-55c", "mail", 40)]
        {
            let labels = [("namespace", namespace), ("pod", pod), ("container", "app")];
            for (name, rate) in [
                ("cpu_usage_seconds", 0.3),
                ("cpu_cfs_throttled_periods", 0.4),
                ("cpu_cfs_periods", 10.0),
            ] {
                let name = format!("container_{name}_total");
                let line = format!("{name}{{{}}}", self.labels(&labels));
                // One pod is deleted.
                for (scrape, value) in self.totals(&line, rate, 1e3).drain(..scrapes) {
                    self.line((&name, "counter"), &line, scrape, value);
                }
            }
            self.level("container_memory_working_set_bytes", &labels, 1.9e8);
            let network = [labels[0], labels[1], ("interface", "eth0")];
            self.counter("container_network_receive_bytes_total", &network, 1e5);
            self.counter("container_network_transmit_bytes_total", &network, 2e5);
            let verb = [labels[0], labels[1], ("operation_type", "start_container")];
            self.histogram("kubelet_runtime_operations_duration_seconds", &verb, (0.3, 0.2));
        }
    }
}
