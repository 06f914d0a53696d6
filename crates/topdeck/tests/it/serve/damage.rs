//! Acknowledgement of damage on a running server.

use super::server_process::ServerProcess;
use crate::topdeck;

/// `topdeck damage` of a server: exit status and output.
fn damage(server: &ServerProcess, more: &[&str]) -> (i32, String) {
    let url = format!("http://127.0.0.1:{}", server.port);
    let run = topdeck(&[&["damage", "--server", &url], more].concat(), b"");
    (run.status, run.stdout + &run.stderr)
}

#[test]
fn an_acknowledged_record_is_not_reported_again_after_a_restart() {
    const NAME: &str = "record 5 of the journal";
    let mut server = ServerProcess::new("serve", "");
    server.start();
    server.stop();
    // What a server leaves of a record on which it panicked three times.
    let dir = server.dir.path("data/store/quarantine");
    std::fs::create_dir_all(&dir).expect("a directory can be created");
    std::fs::write(dir.join("5.batch"), b"batch").expect("a file can be written");
    for _ in 0..2 {
        server.start();
        let health = server.get("/health").text();
        assert_eq!(health, format!("topdeck is healthy\n{NAME} is quarantined; see /v1/status\n"));
        server.stop();
    }
    server.start();
    let (status, text) = damage(&server, &[]);
    assert!(status == 3 && text.contains(NAME), "{status}: {text}");
    let (status, text) = damage(&server, &["--acknowledge", "record 6 of the journal"]);
    assert!(status == 1 && text.contains("it is not reported"), "{status}: {text}");
    let acknowledge = ["--acknowledge", NAME, "--note", "a defect of version 0.1.0"];
    let (status, text) = damage(&server, &acknowledge);
    assert!(status == 0 && text.contains("a defect of version 0.1.0"), "{status}: {text}");
    server.kill();
    server.start();
    assert_eq!(server.get("/health").text(), "topdeck is healthy\n");
    let (status, text) = damage(&server, &[]);
    assert!(status == 0 && text.starts_with("no damage that is not acknowledged\n"), "{text}");
    assert!(text.contains(NAME) && text.contains("a defect of version 0.1.0"), "{text}");
    let stored = server.get("/v1/status").json();
    assert_eq!(stored["quarantined"][0]["acknowledged"], true, "it stays listed");
}
