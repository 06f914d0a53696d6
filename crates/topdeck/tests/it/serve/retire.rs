//! Retirement of series on a running server.

use super::client::request_at;
use super::server_process::ServerProcess;
use crate::topdeck;

#[test]
fn a_series_is_retired_by_command_after_a_dry_run_and_its_rows_stay() {
    let mut server = ServerProcess::new("serve", "");
    server.start();
    let path = "/v1/record?metric=checkout&unit=ms";
    let sent = request_at(server.address(), "POST", path, &[], b"1\n2\n3").expect("it answers");
    assert!(sent.status < 300, "{}", sent.text());
    let url = format!("http://127.0.0.1:{}", server.port);
    let retire = |more: &[&str]| {
        let run = topdeck(&[&["retire", "checkout", "--server", &url], more].concat(), b"");
        (run.status, run.stdout + &run.stderr)
    };
    let current = || server.get("/api/v1/query?query=checkout").json()["data"]["result"].clone();
    let (status, text) = retire(&[]);
    assert_eq!((status, &text[..]), (0, "would retire 1 series: checkout in ns; --yes retires\n"));
    assert_eq!(current().as_array().unwrap().len(), 1, "nothing changed yet");
    let (status, text) = retire(&["--yes"]);
    assert_eq!((status, &text[..]), (0, "retired 1 series\n"));
    assert_eq!(current().as_array().unwrap().len(), 0);
    assert_eq!(server.get("/v1/histogram?selector=checkout").json()["count"], 3);
    let (status, text) = retire(&["--yes"]);
    assert!(status == 1 && text.contains("is current"), "{status}: {text}");
    // Its last row is there, but it has no value any more.
    let run = topdeck(&["query", "checkout", "--server", &url, "--to", "now"], b"");
    let hint = "a series has no value at an instant once it is retired";
    assert!(
        run.stderr.contains("samples exist from") && run.stderr.contains(hint),
        "{}",
        run.stderr
    );
    // PromQL finds it by this name, too.
    let run = topdeck(&["retire", "checkout_seconds", "--server", &url], b"");
    let hint = "matches no series; changes take stored names, not those of PromQL: select checkout";
    assert!(run.status == 1 && run.stderr.contains(hint), "{}", run.stderr);
}

/// Error messages said "delete or rename the others", but `topdeck rename` did not exist.
#[test]
fn a_series_is_renamed_by_command_after_a_dry_run_that_says_what_happens() {
    let mut server = ServerProcess::new("serve", "");
    server.start();
    let send = |path: &str| {
        let sent = request_at(server.address(), "POST", path, &[], b"5").expect("it answers");
        assert!(sent.status < 300, "{}", sent.text());
    };
    send("/v1/record?metric=took&unit=ms");
    send("/v1/record?metric=took");
    let url = format!("http://127.0.0.1:{}", server.port);
    let rename = |more: &[&str]| {
        let run = topdeck(&[&["rename", "--server", &url], more].concat(), b"");
        (run.status, run.stdout + &run.stderr)
    };
    let unitless = "and(__name:took,__unit:\"\")";
    let (status, text) = rename(&[unitless, "--unit", "ns"]);
    let expected = "would rename 1 series, 1 sample: took to took in ns; --yes renames\n  values \
                    are not converted: 1730 becomes 1730 ns\n  took in ns exists: the samples are \
                    added to its own\n";
    assert_eq!((status, &text[..]), (0, expected));
    let (status, text) = rename(&[unitless, "spent"]);
    let expected = "would rename 1 series, 1 sample: took to spent; --yes renames\n";
    assert_eq!((status, &text[..]), (0, expected));
    let (status, text) = rename(&[unitless, "spent", "--yes"]);
    assert_eq!((status, &text[..]), (0, "renamed 1 series, 1 sample\n"));
    assert_eq!(server.get("/v1/histogram?selector=spent").json()["count"], 1);
    assert_eq!(server.get("/v1/histogram?selector=took").json()["count"], 1);
    assert_eq!(rename(&["took"]).0, 2, "without a new name");
}
