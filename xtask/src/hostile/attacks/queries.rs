//! Expensive queries.

use std::thread;

use anyhow::{Result, ensure};

use crate::hostile::attack_target::{AttackTarget, ensure_rejected, now_ms};
use crate::hostile::client::percent_encode;

/// Interval between two samples of a series, up to now.
const STEP_MS: u64 = 10_000;

/// Sends this many series of a metric with this many samples each. Returns their time range as
/// query parameters.
pub(super) fn send_numbers(
    scene: &AttackTarget,
    metric: &str,
    series: u64,
    numbers: u64,
) -> Result<(String, String)> {
    let end = now_ms();
    let time = |at: u64| end - (numbers - at) * STEP_MS;
    let line = |at| {
        let (number, series) = (at / series, at % series);
        format!("{metric},host=host{series},zone=zone{} value={at} {}\n", series % 7, time(number))
    };
    scene.send_lines(&(0..series * numbers).map(line).collect::<Vec<_>>())?;
    scene.wait_until_series(metric, series)?;
    let of = |ms: u64| format!("{ms}000000ns");
    Ok((of(time(0)), of(end)))
}

/// As many queries as run concurrently, each of which uses its whole memory limit.
pub(super) fn expensive_queries(scene: &AttackTarget) -> Result<String> {
    let (from, to) = send_numbers(scene, "heavy", 2_000, 300)?;
    let queries = [
        "max_over_time(heavy[50m:1s])",
        "sum by (zone) (rate(heavy[30m])) + count(heavy) + topk(100, heavy)",
        "quantile_over_time(0.99, heavy[50m])",
        "heavy + on (host) heavy * on (host) heavy",
    ];
    let ask = |query: &str| {
        let query = percent_encode(query);
        let path = format!("/v1/query?query={query}&from={from}&to={to}&step=1s");
        scene.request("GET", &path, &[], b"").map(|answer| answer.status)
    };
    let ask = &ask;
    let statuses = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|at| scope.spawn(move || ask(queries[at % queries.len()]))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("BUG: it panicked"));
        ended.collect::<Vec<_>>()
    });
    let mut known: Vec<u16> = statuses.into_iter().map(|status| status.unwrap_or(0)).collect();
    known.sort_unstable();
    let are_good = known.iter().all(|status| matches!(status, 0 | 200 | 422 | 429 | 503));
    ensure!(are_good, "responses to heavy queries: {known:?}");
    Ok(format!("answered {known:?}"))
}

/// Expressions nested deeper than any stack.
pub(super) fn deep_expressions(scene: &AttackTarget) -> Result<String> {
    const DEPTH: usize = 20_000;
    let around = |open: &str, close: &str| open.repeat(DEPTH) + "1" + &close.repeat(DEPTH);
    let programs = [
        ("promql", around("(", ")")),
        ("promql", around("-", "")),
        ("promql", around("abs(", ")")),
        ("promql", around("1+", "")),
        ("promql", around("2^", "")),
        ("promql", "up".to_owned() + &"[1m:1s]".repeat(DEPTH)),
        ("promql", "sum(".repeat(DEPTH)),
        ("promql", "\"".to_owned() + &"\\".repeat(DEPTH)),
        ("caql", around("(", ")")),
        ("caql", "find(\"x\")".to_owned() + &" | each:sub(1)".repeat(DEPTH)),
        ("caql", around("op:sum{", "}")),
        ("caql", around("stats:mean(", ")")),
    ];
    for (language, program) in programs {
        // A form, because the request line is limited.
        let form = format!("language={language}&query={}", percent_encode(&program));
        let headers = [("Content-Type", "application/x-www-form-urlencoded")];
        let shown = &program[..20];
        for path in ["/v1/query", "/api/v1/query"] {
            let answer = scene.request("POST", path, &headers, form.as_bytes());
            let what = format!("{path}: {language} {shown}…");
            match answer {
                // Expressions that are long but not deep may succeed.
                Ok(answer) if answer.status == 200 => {}
                answer => ensure_rejected(&what, &answer)?,
            }
        }
    }
    let selector = "and(".repeat(DEPTH / 2);
    let path = format!("/v1/series?selector={selector}");
    ensure_rejected("a deep selector", &scene.request("GET", &path, &[], b""))?;
    Ok(String::new())
}

pub(super) fn regex_bombs(scene: &AttackTarget) -> Result<String> {
    send_numbers(scene, "regex", 1_000, 1)?;
    let long = "a".repeat(30_000);
    let regexes = [
        "(a{1000}){1000}",
        "((((a{100}){100}){100}){100}){100}",
        "(.*)*(.*)*(.*)*(.*)*x",
        "(a|a)*(a|a)*(a|a)*$",
        "\\\\pL{1000}",
        "(?i)[a-z]{5000}",
        &long,
    ];
    for regex in regexes {
        let selector = percent_encode(&format!("regex{{host=~\"{regex}\"}}"));
        for path in [
            format!("/v1/series?selector={selector}"),
            format!("/v1/query?query={selector}"),
            format!("/api/v1/series?match[]={selector}"),
        ] {
            let answer = scene.request("GET", &path, &[], b"");
            match answer {
                Ok(answer) if matches!(answer.status, 200 | 404) => {}
                answer => ensure_rejected(&path[..60], &answer)?,
            }
        }
    }
    Ok(String::new())
}

pub(super) fn oversized_heatmaps(scene: &AttackTarget) -> Result<String> {
    let values: String = (1..10_000u64).map(|at| format!("{}\n", at * at)).collect();
    for _ in 0..5 {
        let path = "/v1/record?metric=heat&unit=ns";
        let answer = scene.request("POST", path, &[], values.as_bytes())?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    }
    scene.wait_until_stored("heat", 5 * 9_999)?;
    for parameters in [
        "columns=10001",
        "columns=1000000000000000000",
        "columns=18446744073709551616",
        "columns=-1",
        "columns=0",
        "step=1ns&from=-1d",
        "step=0&from=-1d",
        "columns=100&q=2",
        "columns=100&from=now&to=-1d",
        "columns=10&from=0ns&to=99999999999999999999ns",
    ] {
        let path = format!("/v1/heatmap?selector=heat&{parameters}");
        ensure_rejected(&path, &scene.request("GET", &path, &[], b""))?;
    }
    let path = "/v1/heatmap?selector=heat&columns=10000&from=-1d&to=now";
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..16).map(|_| scope.spawn(|| scene.request("GET", path, &[], b""))).collect();
        for thread in threads {
            let answer = thread.join().expect("BUG: it panicked")?;
            let is_good = matches!(answer.status, 200 | 422 | 429 | 503);
            ensure!(is_good, "{path}: {}: {}", answer.status, answer.text());
        }
        Ok(())
    })?;
    Ok(String::new())
}
