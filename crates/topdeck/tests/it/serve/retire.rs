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
    assert_eq!(status, 1, "{text}");
    assert_eq!(text, "topdeck: nothing retired; --yes retires 1 series: checkout\n");
    assert_eq!(current().as_array().unwrap().len(), 1, "nothing changed yet");
    let (status, text) = retire(&["--yes"]);
    assert_eq!((status, &text[..]), (0, "retired 1 series\n"));
    assert_eq!(current().as_array().unwrap().len(), 0);
    assert_eq!(server.get("/v1/histogram?selector=checkout").json()["count"], 3);
    let (status, text) = retire(&["--yes"]);
    assert!(status == 1 && text.contains("is current"), "{status}: {text}");
}
