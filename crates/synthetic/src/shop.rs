//! A made-up web shop, for demonstrations: request durations of five services in two regions, with
//! a daily load and an incident, statements of its database, and a load test.
//!
//! The incident is a deployment of one host of the service `payment`: it makes a quarter of the
//! payments in region `eu` wait for a second or more, and with them the orders that need a payment.
//! It is found by the labels `host` and `version`. Before and after it the shop is healthy.
//!
//! Durations are whole nanoseconds, drawn from lognormal distributions with one or two modes. A
//! histogram depends only on its series and its interval.

use std::ops::Range;

use hist::Histogram;

use crate::MINUTE_NS;
use crate::keyed_rng::KeyedRng;

const SECOND_NS: i64 = MINUTE_NS / 60;
const HOUR_NS: i64 = 60 * MINUTE_NS;
const DAY_NS: i64 = 24 * HOUR_NS;
/// Maximum number of different values of a histogram; beyond it a value stands for several.
const DRAWS_MAX: u64 = 150;
/// Version of `payment` before and during the incident.
const VERSIONS: [&str; 2] = ["3.7.2", "3.8.0"];
/// Host whose deployment fails.
const FAILING_HOST: &str = "pay-2";

/// An endpoint of a service, on two hosts in each of two regions.
struct ShopEndpoint {
    service: &'static str,
    host: &'static str,
    endpoint: &'static str,
    /// Requests per second at noon, of one host in one region.
    rate: f64,
    /// Median duration in milliseconds.
    median_ms: f64,
    /// Share of requests that miss the cache, and how many times as long they take.
    slow: (f64, f64),
    /// Whether requests wait for a payment.
    pays: bool,
}

const ENDPOINTS: [ShopEndpoint; 7] = [
    endpoint("front", "web", "GET /", 6.0, 9.0, (0.08, 6.0)),
    endpoint("front", "web", "GET /search", 2.5, 38.0, (0.15, 4.0)),
    endpoint("front", "web", "GET /product", 4.0, 16.0, (0.1, 5.0)),
    endpoint("cart", "cart", "POST /cart", 1.5, 22.0, (0.04, 8.0)),
    endpoint("inventory", "stock", "GET /stock", 5.0, 3.0, (0.02, 20.0)),
    ShopEndpoint {
        pays: true,
        ..endpoint("orders", "order", "POST /orders", 0.8, 120.0, (0.05, 3.0))
    },
    ShopEndpoint { pays: true, ..endpoint("payment", "pay", "POST /pay", 0.8, 85.0, (0.03, 4.0)) },
];

const fn endpoint(
    service: &'static str,
    host: &'static str,
    endpoint: &'static str,
    rate: f64,
    median_ms: f64,
    slow: (f64, f64),
) -> ShopEndpoint {
    ShopEndpoint { service, host, endpoint, rate, median_ms, slow, pays: false }
}

/// Statements of the database, which waits for the failing host during the incident.
const STATEMENTS: [(&str, &str, ShopEndpoint); 4] = [
    ("SELECT", "price FROM products WHERE id = ANY($1)", statement(9.0, 0.9, (0.05, 4.0))),
    ("SELECT", "stock FROM inventory WHERE sku = $1", statement(5.0, 0.5, (0.02, 12.0))),
    ("INSERT", "INTO orders (customer, sku) VALUES ($1, $2)", statement(0.8, 4.0, (0.1, 3.0))),
    (
        "UPDATE",
        "payments SET state = $1 WHERE id = $2",
        ShopEndpoint { pays: true, ..statement(0.8, 6.0, (0.05, 5.0)) },
    ),
];

const fn statement(rate: f64, median_ms: f64, slow: (f64, f64)) -> ShopEndpoint {
    endpoint("ledger", "db-1", "", rate, median_ms, slow)
}

/// Requests per second of the load test.
const LOAD_TEST_RATE: f64 = 100.0;
const LOAD_TEST: ShopEndpoint = endpoint("payment", "pay", "POST /pay", 0.0, 85.0, (0.03, 4.0));

const REGIONS: [&str; 2] = ["eu", "us"];

/// The shop, with an incident at a given time.
#[derive(Clone, Debug)]
pub struct Shop {
    incident: Range<i64>,
}

/// Durations of the requests of one host to an endpoint in an interval, in nanoseconds.
#[derive(Clone, Debug)]
pub struct ShopRequests {
    /// Label names and values.
    pub labels: Vec<(&'static str, String)>,
    /// Durations; empty if there was no request.
    pub durations: Histogram,
}

/// Durations of a statement of the shop's database in an interval, in nanoseconds.
#[derive(Clone, Debug)]
pub struct ShopStatement {
    /// SQL command.
    pub verb: &'static str,
    /// The rest of its text, without literals.
    pub statement: &'static str,
    /// Durations; empty if it was not executed.
    pub durations: Histogram,
}

/// Numbers of the shop at a time or in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShopNumbers {
    /// Region.
    pub region: &'static str,
    /// Orders in the interval.
    pub orders: f64,
    /// Payments that wait for the bank.
    pub queue_depth: f64,
}

impl Shop {
    /// A shop whose incident began 2 h 50 min before `now`, in nanoseconds since the Unix epoch,
    /// and ended 45 minutes later.
    pub fn new(now: i64) -> Shop {
        let start = now - 2 * HOUR_NS - 50 * MINUTE_NS;
        Shop { incident: start..start + 45 * MINUTE_NS }
    }

    /// The incident, from the deployment to its rollback.
    pub fn incident(&self) -> Range<i64> {
        self.incident.clone()
    }

    /// Version of `payment` on the host of the incident at a time.
    pub fn payment_version(&self, at: i64) -> &'static str {
        VERSIONS[usize::from(self.incident.contains(&at))]
    }

    /// Requests of all hosts in an interval.
    pub fn requests(&self, interval: &Range<i64>) -> Vec<ShopRequests> {
        let mut found = Vec::new();
        for (number, endpoint) in ENDPOINTS.iter().enumerate() {
            for (region_number, region) in REGIONS.into_iter().enumerate() {
                for host_number in 1..=2 {
                    let host = format!("{}-{host_number}", endpoint.host);
                    let version = match endpoint.service {
                        "payment" if region == "eu" && host == FAILING_HOST => {
                            self.payment_version(interval.start)
                        }
                        "payment" => VERSIONS[0],
                        _ => "1.12.0",
                    };
                    let key = (number * 4 + region_number * 2 + host_number) as u64;
                    let failing = self.failing_share(endpoint, region, &host, interval.start);
                    found.push(ShopRequests {
                        durations: durations(endpoint, key, interval, failing),
                        labels: vec![
                            ("endpoint", endpoint.endpoint.to_owned()),
                            ("host", host),
                            ("region", region.to_owned()),
                            ("service", endpoint.service.to_owned()),
                            ("version", version.to_owned()),
                        ],
                    });
                }
            }
        }
        found
    }

    /// Statements of the database in an interval.
    pub fn statements(&self, interval: &Range<i64>) -> Vec<ShopStatement> {
        let is_failing = self.incident.contains(&interval.start);
        let of = |(number, (verb, statement, rates)): (usize, &(&'static str, &'static str, _))| {
            let rates: &ShopEndpoint = rates;
            let failing = if is_failing && rates.pays { 0.2 } else { 0.0 };
            let key = 1_000 + number as u64;
            let durations = durations(rates, key, interval, failing);
            ShopStatement { verb, statement, durations }
        };
        STATEMENTS.iter().enumerate().map(of).collect()
    }

    /// Response times of a load test of `payment` in a second: of the failing version, or of the
    /// one before.
    pub fn load_test(&self, is_failing: bool, second: &Range<i64>) -> Histogram {
        let failing = if is_failing { 0.25 } else { 0.0 };
        let key = 2_000 + u64::from(is_failing);
        draw(&LOAD_TEST, (key, second), failing, (1.0, LOAD_TEST_RATE))
    }

    /// Numbers of both regions in an interval.
    pub fn numbers(&self, interval: &Range<i64>) -> [ShopNumbers; 2] {
        let seconds = (interval.end - interval.start) as f64 / SECOND_NS as f64;
        let mut random = KeyedRng::new([900, interval.start as u64, 0]);
        REGIONS.map(|region| {
            let is_failing = region == "eu" && self.incident.contains(&interval.start);
            let orders = 1.5 * load(interval.start) * seconds * (1.0 + 0.1 * random.normal());
            let orders = if is_failing { orders * 0.7 } else { orders };
            let waiting = if is_failing { 40.0 + 8.0 * random.normal() } else { 2.0 };
            ShopNumbers {
                region,
                orders: orders.max(0.0).round(),
                queue_depth: (waiting + random.normal()).max(0.0).round(),
            }
        })
    }

    /// Share of requests that wait for the failing host.
    fn failing_share(&self, endpoint: &ShopEndpoint, region: &str, host: &str, at: i64) -> f64 {
        match self.incident.contains(&at) && region == "eu" && endpoint.pays {
            false => 0.0,
            true if endpoint.service == "payment" => {
                if host == FAILING_HOST {
                    0.5
                } else {
                    0.0
                }
            }
            // Orders use either host of `payment`.
            true => 0.25,
        }
    }
}

/// Load at a time, 0.25 at night to 1 at noon.
fn load(at: i64) -> f64 {
    let hour = at.rem_euclid(DAY_NS) as f64 / HOUR_NS as f64;
    // A parabola through the hours of the day: no table, and the same on every machine.
    let from_noon = (hour - 13.0) / 12.0;
    (1.0 - 0.75 * from_noon * from_noon).clamp(0.25, 1.0)
}

fn durations(endpoint: &ShopEndpoint, key: u64, interval: &Range<i64>, failing: f64) -> Histogram {
    let load = load(interval.start);
    draw(endpoint, (key, interval), failing, (load, endpoint.rate * load))
}

/// Durations with a load, at a rate in requests per second.
fn draw(
    endpoint: &ShopEndpoint,
    (key, interval): (u64, &Range<i64>),
    failing: f64,
    (load, rate): (f64, f64),
) -> Histogram {
    let mut random = KeyedRng::new([key, interval.start as u64, interval.end as u64]);
    let seconds = (interval.end - interval.start) as f64 / SECOND_NS as f64;
    let expected = rate * seconds;
    let count = (expected + expected.sqrt() * random.normal()).round().max(0.0) as u64;
    let mut histogram = Histogram::default();
    let draws = count.min(DRAWS_MAX);
    for draw in 0..draws {
        let chance = random.below(1_000_000) as f64 / 1e6;
        // Queues grow with the load.
        let mut median_ms = endpoint.median_ms * (0.85 + 0.3 * load);
        let mut spread = 0.35;
        if chance < failing {
            (median_ms, spread) = (1_600.0, 0.25);
        } else if chance > 1.0 - endpoint.slow.0 {
            median_ms *= endpoint.slow.1;
            spread = 0.5;
        }
        let ms = median_ms * (spread * random.normal()).exp();
        // Each draw stands for the same number of requests, the first ones for one more.
        let requests = count / draws + u64::from(draw < count % draws);
        histogram.record_n((ms * 1e6).round(), requests);
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_794_225_600_000_000_000;

    fn minute(at: i64) -> Range<i64> {
        at..at + MINUTE_NS
    }

    fn slow_share(requests: &[ShopRequests], matches: impl Fn(&ShopRequests) -> bool) -> f64 {
        let matching = || requests.iter().filter(|of| matches(of));
        let above = hist::LimitInclusion::Exclusive;
        let slow: u64 = matching().map(|of| of.durations.count_above(8e8, above).estimate).sum();
        slow as f64 / matching().map(|of| of.durations.count()).sum::<u64>().max(1) as f64
    }

    fn label<'a>(of: &'a ShopRequests, name: &str) -> &'a str {
        of.labels.iter().find(|(other, _)| *other == name).map_or("", |(_, value)| value)
    }

    #[test]
    fn the_incident_is_on_one_host_and_in_the_orders_that_need_it() {
        let shop = Shop::new(NOW);
        let during = shop.requests(&minute(shop.incident().start + 10 * MINUTE_NS));
        let is_failing =
            |of: &ShopRequests| label(of, "host") == "pay-2" && label(of, "region") == "eu";
        assert!(slow_share(&during, is_failing) > 0.3);
        assert!(
            during.iter().filter(|of| is_failing(of)).all(|of| label(of, "version") == "3.8.0")
        );
        let other_host = |of: &ShopRequests| label(of, "host") == "pay-1";
        assert!(slow_share(&during, other_host) < 0.02);
        let orders =
            |of: &ShopRequests| label(of, "service") == "orders" && label(of, "region") == "eu";
        assert!(slow_share(&during, orders) > 0.15);
        let after = shop.requests(&minute(NOW - 30 * MINUTE_NS));
        assert!(slow_share(&after, |_| true) < 0.01);
    }

    #[test]
    fn payments_of_the_database_and_of_the_failing_version_are_slow() {
        let shop = Shop::new(NOW);
        let slow = |of: &Histogram| {
            of.count_above(8e8, hist::LimitInclusion::Exclusive).estimate * 10 > of.count()
        };
        let statements = |at: i64| -> Vec<bool> {
            shop.statements(&minute(at)).iter().map(|of| slow(&of.durations)).collect()
        };
        assert_eq!(statements(shop.incident().start), [false, false, false, true]);
        assert_eq!(statements(shop.incident().end), [false; 4]);
        let second = NOW..NOW + SECOND_NS;
        let tests = [true, false].map(|is_failing| shop.load_test(is_failing, &second));
        assert_eq!(tests.each_ref().map(slow), [true, false]);
        assert!(tests.iter().all(|test| (60..=140).contains(&test.count())), "{tests:?}");
    }

    #[test]
    fn counts_follow_the_load_of_the_day() {
        let shop = Shop::new(NOW);
        let count = |at: i64| -> u64 {
            shop.requests(&minute(at)).iter().map(|of| of.durations.count()).sum()
        };
        let midnight = NOW - NOW.rem_euclid(DAY_NS);
        assert!(count(midnight + 13 * HOUR_NS) > 2 * count(midnight + HOUR_NS));
        // A histogram with fewer draws than requests has all of them.
        let hour = midnight + 13 * HOUR_NS..midnight + 14 * HOUR_NS;
        let total: u64 = shop.requests(&hour).iter().map(|of| of.durations.count()).sum();
        let minutes: u64 = (0..60).map(|at| count(hour.start + at * MINUTE_NS)).sum();
        assert!((total as f64 / minutes as f64 - 1.0).abs() < 0.05, "{total} {minutes}");
    }

    #[test]
    fn an_interval_always_has_the_same_values() {
        let (one, other) = (Shop::new(NOW), Shop::new(NOW));
        let interval = minute(NOW - HOUR_NS);
        let values = |shop: &Shop| -> Vec<Histogram> {
            shop.requests(&interval).into_iter().map(|of| of.durations).collect()
        };
        assert_eq!(values(&one), values(&other));
        assert_eq!(one.numbers(&interval), other.numbers(&interval));
    }
}
