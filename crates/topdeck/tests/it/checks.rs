//! `topdeck doctor checks`: each check of a settings file, once.

use crate::test_dir::TestDir;
use crate::topdeck;

const SETTINGS: &str = r#"
[[check]]
name = "disk"
command = ["/bin/sh", "-c", "echo 'OK | free=80%'"]

[[check]]
name = "queue"
command = ["/bin/sh", "-c", "echo 'too long'; exit 2"]
"#;

#[test]
fn checks_of_a_settings_file_are_tried() {
    let dir = TestDir::new();
    let file = dir.path().join("topdeck.toml");
    std::fs::write(&file, SETTINGS).expect("a file");
    let file = file.to_str().expect("UTF-8");
    let run = topdeck(&["doctor", "checks", file], b"");
    assert_eq!((run.status, &*run.stderr), (1, ""), "one of them fails");
    let lines: Vec<&str> = run.stdout.lines().collect();
    // In the order of the file; times differ.
    assert_eq!(lines[0], "disk (command:/bin/sh): success");
    assert!(lines[1].starts_with("  start ") && lines[1].ends_with(" ms"), "{lines:?}");
    assert!(lines[2].starts_with("  run ") && lines[3].starts_with("  total "), "{lines:?}");
    assert_eq!(lines[4], "  probe_perfdata{check=\"disk\",perfdata=\"free\"} 80");
    assert_eq!(lines[6], "queue (command:/bin/sh): FAILED: CRITICAL: too long");
    let run = topdeck(&["doctor", "checks", file, "--check", "disk"], b"");
    assert!(run.status == 0 && !run.stdout.contains("queue"), "{}", run.all());
    let run = topdeck(&["doctor", "checks", file, "--check", "disc"], b"");
    assert!(run.stderr.contains("has no check \"disc\"; it has: disk, queue"), "{}", run.all());
}
