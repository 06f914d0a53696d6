//! A disk that fills while the server runs: what it answers, what it logs, and that it can be
//! stopped.

use super::client::{TestResponse, request_at, request_with_timeout};
use super::data_loss::{SHORT_WAIT, SmallFilesystem};
use super::server_process::{ServerProcess, wait_until};

const NO_SPACE: &str = "no space left on the disk";

/// Lines of 400 KB that do not compress, other ones for each `seed`.
fn notes(mut seed: u64) -> Vec<u8> {
    let mut body = String::new();
    for number in 0..100 {
        body += &format!("note,number={number} text=\"");
        for _ in 0..250 {
            // Xorshift (Marsaglia).
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            body += &format!("{seed:016x}");
        }
        body += "\"\n";
    }
    body.into_bytes()
}

/// Sends until a request is answered that the disk is full.
#[track_caller]
fn fill_by_ingest(deck: &ServerProcess) -> TestResponse {
    for seed in 1..500 {
        let answer = request_at(deck.address(), "POST", "/write", &[], &notes(seed));
        let answer = answer.unwrap_or_else(|error| panic!("{error}:\n{}", deck.log()));
        if answer.text().contains(NO_SPACE) {
            return answer;
        }
    }
    panic!("the disk is not full:\n{}", deck.log());
}

fn refuses(deck: &ServerProcess, path: &str) -> bool {
    let says_why = |answer: TestResponse| answer.status == 503 && answer.text().contains(NO_SPACE);
    deck.request("GET", path).is_ok_and(says_why)
}

/// Number of times that the log has a text.
fn count(deck: &ServerProcess, text: &str) -> usize {
    deck.log().matches(text).count()
}

/// A user saw `/health` say that a server whose disk was full is well, an empty log, and a SIGTERM
/// that never ended it.
#[test]
fn full_disk_is_reported_and_the_stop_says_what_it_gave_up() {
    let mut deck = ServerProcess::new("serve", "");
    let Some(disk) = SmallFilesystem::mount(&deck.dir.path("data"), 40) else { return };
    deck.start();
    // The segment that is reserved has space still.
    disk.fill();
    // With 0 B free the status was "healthy" until a segment was needed.
    let status = deck.get("/v1/status").json();
    let free = status["data"]["free_bytes"].as_u64();
    assert!(free < status["journal"]["next_segment_bytes"].as_u64(), "{status}");
    // A user's request that filled the disk had no answer for two minutes, then one without
    // Retry-After.
    let answer = fill_by_ingest(&deck);
    assert!(matches!(answer.status, 429 | 503), "{}", answer.head);
    let head = answer.head.to_ascii_lowercase();
    assert!(head.contains("\nretry-after: 5"), "{head}");
    for path in ["/health", "/-/ready"] {
        wait_until("it says that it is not ready", || refuses(&deck, path));
    }
    // It said "or raise the limit", and there is none.
    let health = deck.get("/health");
    assert!(health.status != 503 || !health.text().contains("limit"), "{}", health.text());
    // A restart frees no space.
    assert_eq!(deck.get("/-/healthy").status, 200);
    let path = "/v1/record?metric=took&unit=ms";
    let is_refused = || {
        let post = request_with_timeout(SHORT_WAIT, deck.address(), "POST", path, &[], b"5\n");
        post.is_ok_and(|answer| answer.status == 429 && answer.text().contains(NO_SPACE))
    };
    wait_until("senders are asked to retry, with the reason", is_refused);
    let full = "cannot store new data: no space left on the disk";
    wait_until("the log says that it is full", || count(&deck, full) == 1);
    disk.free_space();
    wait_until("it is ready again", || {
        deck.request("GET", "/-/ready").is_ok_and(|it| it.status == 200)
    });
    wait_until("the log says that it is over", || count(&deck, "new data is stored again") == 1);
    disk.fill();
    // The server frees some space itself: it may be full, and not, several times.
    wait_until("the log says that it is full again", || {
        fill_by_ingest(&deck);
        count(&deck, full) >= 2
    });
    deck.stop();
    let log = deck.log();
    let (_, end) = log.rsplit_once("stopping").expect("the log has the stop");
    // The limit is the server's: how long this machine needs for it is not measured here.
    assert!(end.starts_with(", within 15 s\n"), "{log}");
    // The last flush may free the space that the data waits for. Then it must be stored.
    let is_given_up = end.contains("the stop gave up ") && end.contains("wait for the disk");
    assert!(is_given_up || end.contains("new data is stored again"), "{log}");
}

/// A user started a server on a full disk, and it looked well.
#[test]
fn server_without_space_for_its_first_segment_is_not_ready() {
    let mut deck = ServerProcess::new("serve", "");
    let Some(_disk) = SmallFilesystem::mount(&deck.dir.path("data"), 4) else { return };
    deck.spawn();
    wait_until("it says that it is not ready", || refuses(&deck, "/-/ready"));
    assert!(deck.log().contains("cannot store new data"), "{}", deck.log());
    deck.stop();
    // Without space for the journal itself it does not start.
    let mut deck = ServerProcess::new("serve", "");
    let Some(_disk) = SmallFilesystem::mount(&deck.dir.path("data"), 1) else { return };
    deck.spawn();
    wait_until("it says why it cannot start", || deck.log().contains("cannot reserve space for"));
    // It did not say how much.
    let log = deck.log();
    assert!(log.contains("; it needs ") && log.contains(" MB: free this space"), "{log}");
    deck.kill();
}

/// Segments are as large as the disk allows.
#[test]
fn server_on_a_small_disk_stores_data() {
    let mut deck = ServerProcess::new("serve", "");
    let Some(_disk) = SmallFilesystem::mount(&deck.dir.path("data"), 12) else { return };
    deck.start();
    let path = "/v1/record?metric=took&unit=ms";
    let stored = request_with_timeout(SHORT_WAIT * 20, deck.address(), "POST", path, &[], b"5\n");
    assert_eq!(stored.map(|answer| answer.status).ok(), Some(200));
    deck.stop();
}
