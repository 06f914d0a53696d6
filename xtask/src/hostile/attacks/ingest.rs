//! Senders that send too much, or data of others.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::clients::topdeck_server::TopdeckServer;
use crate::hostile::attack_target::{AttackTarget, now_ms};
use crate::hostile::bytes::forward_request;
use crate::hostile::client::KeepAliveConnection;

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

/// One sender exhausts the values of a label while another sends new hosts.
pub(super) fn cardinality_flood(scene: &AttackTarget) -> Result<String> {
    const LINES: u64 = 300_000;
    const NEW_HOSTS: u64 = 100;
    let is_over = AtomicBool::new(false);
    let refused = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for first in (0..LINES).step_by(30_000) {
                let line = |at| format!("flood,host=flood{at} value=1\n");
                let body: String = (first..first + 30_000).map(line).collect();
                // The server may accept or reject it.
                let answer = scene.request("POST", "/write", &[], body.as_bytes());
                let is_refused = answer.is_ok_and(|answer| answer.status == 400);
                refused.fetch_add(u64::from(is_refused), Ordering::SeqCst);
            }
            is_over.store(true, Ordering::SeqCst);
        });
        let mut at = 0;
        while at < NEW_HOSTS || !is_over.load(Ordering::SeqCst) {
            // Its own metric, and the flooded one.
            let metric = ["fleet", "flood"][at as usize % 2];
            let line = format!("{metric},host=new{at} value=1\n");
            let answer =
                scene.request_as(&scene.other_token, "POST", "/write", &[], line.as_bytes())?;
            match answer.status {
                204 => at += 1,
                429 => {}
                status => anyhow::bail!("response to a new host: {status}: {}", answer.text()),
            }
            sleep(Duration::from_millis(5));
        }
        scene.wait_until_series("fleet", at.div_ceil(2))
    })?;
    Ok(format!("{} of {} requests rejected", refused.into_inner(), LINES / 30_000))
}

/// Valid histograms of one series and minute, whose counts add up to more than 2^64. Their schemes
/// differ, so the server has to merge them.
pub(super) fn count_overflow(scene: &AttackTarget) -> Result<String> {
    let minute = now_ms() / DAY_MS * DAY_MS - DAY_MS / 2;
    let request = |name: &str, points: u64, count: u64| {
        let point = |at: u64| {
            let end = (minute + 1 + at) * 1_000_000;
            json!({
                "startTimeUnixNano": (end - 1_000_000).to_string(),
                "timeUnixNano": end.to_string(),
                "count": count.to_string(),
                "bucketCounts": [count.to_string(), "0"],
                "explicitBounds": [1 + at % 2],
                "attributes": [{"key": "host", "value": {"stringValue": "a"}}],
            })
        };
        let points: Vec<_> = (0..points).map(point).collect();
        let histogram = json!({"aggregationTemporality": 1, "dataPoints": points});
        let scopes = json!([{"metrics": [{"name": name, "histogram": histogram}]}]);
        json!({"resourceMetrics": [{"scopeMetrics": scopes}]}).to_string()
    };
    // One count within the limit of a histogram, and one above it.
    for body in [request("overflow", 600, 1 << 56), request("absurd", 3, 1 << 63)] {
        let headers = [("Content-Type", "application/json")];
        let answer = scene.request("POST", "/v1/metrics", &headers, body.as_bytes())?;
        ensure!(matches!(answer.status, 200 | 400), "{}: {}", answer.status, answer.text());
    }
    for path in ["/v1/histogram?selector=overflow", "/v1/heatmap?selector=overflow"] {
        let answer = scene.request("GET", path, &[], b"")?;
        ensure!(answer.status < 500, "{path}: {}: {}", answer.status, answer.text());
    }
    // Maintenance downsamples past days; it must complete.
    scene.restart_with(|store| {
        scene.command(&["store", "flush", store])?;
        scene.command(&["store", "maintain", store])
    })?;
    let answer = scene.request("GET", "/v1/histogram?selector=overflow", &[], b"")?;
    ensure!(answer.status < 500, "rolled up: {}: {}", answer.status, answer.text());
    Ok(String::new())
}

/// A batch with a far-future sequence in the name of an agent's journal: later batches of the agent
/// must not be dropped as duplicates.
pub(super) fn forged_sequence(scene: &AttackTarget) -> Result<String> {
    let dir = scene.dir().join("agent");
    std::fs::create_dir(&dir)?;
    std::fs::write(dir.join("token"), &scene.ingest_token)?;
    let site = format!(
        "[[remote]]\nname = \"north\"\nurl = \"http://{}\"\ntoken_file = \"token\"\n",
        scene.address()
    );
    let mut agent = TopdeckServer::start(scene.program(), &dir, &site)?;
    let address = agent.http().parse()?;
    let mut connection = KeepAliveConnection::open(address)?;
    let mut send = |values: u64| {
        for _ in 0..values {
            let answer = connection.request("POST", "/v1/record?metric=from_agent", &[], b"5\n")?;
            ensure!(answer.status == 200, "response of the agent: {}", answer.status);
        }
        Ok(())
    };
    send(50)?;
    scene.wait_until_stored("from_agent", 50)?;
    let status =
        KeepAliveConnection::open(address)?.request("GET", "/v1/status", &[], b"")?.json()?;
    let journal = status["journal"]["id"].as_str().context("the agent has no journal ID")?;
    let forged = forward_request(u128::from_str_radix(journal, 16)?, 1 << 40);
    // Sent by another client with the agent's token, and by one with its own token.
    let mut statuses = Vec::new();
    for token in [&scene.ingest_token, &scene.hostile_token] {
        let answer = scene.request_as(token, "POST", "/v1/batches", &[], &forged)?;
        ensure!(answer.status < 500, "response to a forged request: {}", answer.status);
        statuses.push(answer.status);
    }
    send(50)?;
    scene.wait_until_stored("from_agent", 100)?;
    agent.stop()?;
    Ok(format!("responses to forged requests: {statuses:?}"))
}

pub(super) fn many_series_deleted(scene: &AttackTarget) -> Result<String> {
    const SERIES: u64 = 143_000;
    let line = |at| format!("doomed,host=doomed{at} value=1 {}\n", now_ms());
    scene.send_lines(&(0..SERIES).map(line).collect::<Vec<_>>())?;
    scene.wait_until_series("doomed", SERIES)?;
    let mut time = Duration::ZERO;
    scene.restart_with(|store| {
        scene.command(&["store", "flush", store])?;
        let began = std::time::Instant::now();
        let (from, to) = ("2000-01-01", "2200-01-01");
        scene
            .command(&["store", "delete", store, "doomed", "--from", from, "--to", to, "--yes"])?;
        time = began.elapsed();
        Ok(())
    })?;
    scene.wait_until_series("doomed", 0)?;
    Ok(format!("{SERIES} series deleted in {:.1} s", time.as_secs_f64()))
}

/// Datagrams with ever new series, at full speed.
pub(super) fn udp_flood(scene: &AttackTarget) -> Result<String> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let statsd = scene.statsd();
    for at in 0..300_000u32 {
        let datagram = format!("flood{at}:1|ms|#tag:{at}\nset:{at}|s\nflood:{at}|h|@1e-9\n");
        // UDP: datagrams that the kernel drops are lost.
        let _ = socket.send_to(datagram.as_bytes(), &statsd);
    }
    Ok(String::new())
}

/// Stops the server under load: acknowledged data must be present afterwards.
pub(super) fn stop_during_ingest(scene: &AttackTarget) -> Result<String> {
    let is_over = AtomicBool::new(false);
    let (acknowledged, sent) = (AtomicU64::new(0), AtomicU64::new(0));
    let stopped = thread::scope(|scope| {
        for sender in 0..4 {
            let (is_over, acknowledged, sent) = (&is_over, &acknowledged, &sent);
            scope.spawn(move || {
                let mut at = 0;
                while !is_over.load(Ordering::SeqCst) {
                    at += 1;
                    let line = |it: u64| format!("stop,s=s{sender},at=a{at},it=i{it} value=1\n");
                    let body: String = (0..100).map(line).collect();
                    sent.fetch_add(100, Ordering::SeqCst);
                    let answer = scene.request("POST", "/write", &[], body.as_bytes());
                    if answer.is_ok_and(|answer| answer.status == 204) {
                        acknowledged.fetch_add(100, Ordering::SeqCst);
                    }
                    sleep(Duration::from_millis(20));
                }
            });
        }
        sleep(Duration::from_secs(2));
        let stopped = scene.restart_with(|_| Ok(()));
        sleep(Duration::from_secs(1));
        is_over.store(true, Ordering::SeqCst);
        stopped
    })?;
    let (acknowledged, sent) = (acknowledged.into_inner(), sent.into_inner());
    scene.wait_until("acknowledged values are stored", &true, || {
        let answer = scene.request("GET", "/v1/series?selector=stop&limit=1", &[], b"")?.json()?;
        let found = answer["total"].as_u64().context("no count in the response")?;
        Ok((acknowledged..=sent).contains(&found))
    })?;
    Ok(format!("stopped in {:.1} s", stopped.as_secs_f64()))
}
