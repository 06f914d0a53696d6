//! `topdeck journal` in several processes: followers, kills, concurrent appends.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use expect_test::expect;

use crate::journal::check;
use crate::test_dir::TestDir;

/// Process that is killed on drop.
pub(crate) struct KillOnDrop(pub(crate) Child);

impl KillOnDrop {
    pub(crate) fn kill(&mut self) {
        // As `kill -9`.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Timeout that is long enough for any machine.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_follower_sees_each_line_as_it_is_appended() {
    let dir = TestDir::new();
    dir.run_ok("append j --create", b"before\n");
    let mut tail =
        KillOnDrop(dir.command("tail -f -n 1 j").stdout(Stdio::piped()).spawn().unwrap());
    let (send, lines) = mpsc::channel();
    let output = BufReader::new(tail.0.stdout.take().unwrap());
    std::thread::spawn(move || output.lines().for_each(|line| drop(send.send(line.unwrap()))));
    assert_eq!(lines.recv_timeout(TIMEOUT).as_deref(), Ok("before"));
    for level in ["process", "disk"] {
        let mut append = dir.command(&format!("append j --durability {level}"));
        let mut append =
            KillOnDrop(append.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let mut input = append.0.stdin.take().unwrap();
        for n in 0..5 {
            // The pipe stays open: nothing may wait for its end.
            writeln!(input, "{level} {n}").unwrap();
            assert_eq!(lines.recv_timeout(TIMEOUT), Ok(format!("{level} {n}")));
        }
        append.kill();
    }
}

#[test]
fn follower_ends_when_its_reader_exits() {
    let dir = TestDir::new();
    dir.run_ok("create j", b"");
    let (reader, writer) = std::io::pipe().unwrap();
    let mut tail = KillOnDrop(dir.command("tail -f j").stdout(writer).spawn().unwrap());
    drop(reader);
    // Although nothing was written.
    assert!(tail.0.wait().unwrap().success());
}

#[test]
fn a_closed_output_moves_no_subscriber() {
    let dir = TestDir::new();
    dir.run_ok("append j --create", b"a\nb\n");
    dir.run_ok("subscribers j add s", b"");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut cat = dir.command("cat j --subscriber s");
    let output =
        cat.stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    assert_eq!(dir.run_ok("cat j --subscriber s", b""), b"a\nb\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_moves_no_subscriber() {
    let dir = TestDir::new();
    dir.run_ok("append j --create", b"a\nb\n");
    dir.run_ok("subscribers j add s", b"");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut cat = dir.command("cat j --subscriber s");
    let output =
        cat.stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    check(
        &String::from_utf8(output.stderr).unwrap(),
        expect![[r#"
            topdeck: cannot write to standard output: No space left on device (os error 28)
        "#]],
    );
    assert_eq!(dir.run_ok("cat j --subscriber s", b""), b"a\nb\n");
}

/// Both sides are killed repeatedly: each record exists once and was passed to the subscriber.
#[test]
fn kill_9_loses_and_duplicates_nothing() {
    const RECORDS: u64 = 100_000;
    const KILLS: u64 = 12;
    let dir = TestDir::new();
    let input = dir.path().join("input");
    let lines: String = (0..RECORDS).map(|n| format!("record {n}\n")).collect();
    fs::write(&input, &lines).unwrap();
    dir.run_ok("create j --segment 256KiB --buffer 64KiB", b"");
    dir.run_ok("subscribers j add s", b"");
    let mut got: BTreeMap<u64, String> = BTreeMap::new();
    for round in 0..=KILLS {
        let output = dir.path().join("output");
        let mut append = dir.command("append j --producer 1 --epoch 1 input");
        let mut append = KillOnDrop(append.stderr(Stdio::null()).spawn().unwrap());
        let mut tail = dir.command("tail -f j --positions --subscriber s");
        let mut tail = KillOnDrop(
            tail.stdout(File::create(&output).unwrap()).stderr(Stdio::null()).spawn().unwrap(),
        );
        if round < KILLS {
            // Kills both at varying times.
            std::thread::sleep(Duration::from_millis(7 + round * 13 % 40));
            let (first, second) =
                if round % 2 == 0 { (&mut append, &mut tail) } else { (&mut tail, &mut append) };
            first.kill();
            std::thread::sleep(Duration::from_millis(round % 3 * 5));
            second.kill();
        } else {
            assert!(append.0.wait().unwrap().success());
            tail.kill();
            let rest = dir.run_ok("cat j --positions --subscriber s", b"");
            // The kill may have truncated a line; the next run must not continue it.
            let mut text = fs::read(&output).unwrap();
            text.truncate(text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1));
            fs::write(&output, [text, rest].concat()).unwrap();
        }
        // A write truncated by the kill has no newline and is repeated.
        let text = fs::read_to_string(&output).unwrap();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text[..whole].lines() {
            let (position, record) = line.split_once('\t').expect("a position");
            let before = got.insert(position.parse().unwrap(), record.to_owned());
            assert!(
                before.is_none_or(|before| before == record),
                "position {position} has two records"
            );
        }
    }
    assert!(dir.run_ok("cat j --from begin", b"").len() <= lines.len());
    let given: String = got.values().map(|record| format!("{record}\n")).collect();
    assert_eq!(got.len() as u64, RECORDS, "each position was given");
    assert!(given == lines, "each record once, in order");
}

#[test]
fn concurrent_appends() {
    let dir = TestDir::new();
    dir.run_ok("create j", b"");
    let lines = |who: usize| -> String { (0..20_000).map(|n| format!("{who} {n}\n")).collect() };
    std::thread::scope(|scope| {
        for who in 0..3 {
            let dir = &dir;
            scope.spawn(move || dir.run_ok("append j", lines(who).as_bytes()));
        }
    });
    let all = String::from_utf8(dir.run_ok("cat j", b"")).unwrap();
    for who in 0..3 {
        let prefix = format!("{who} ");
        let mine: String =
            all.split_inclusive('\n').filter(|line| line.starts_with(&prefix)).collect();
        assert!(mine == lines(who), "all of {who}, in order");
    }
}
