//! `topdeck journal` as used from a shell: records are read back after kills, and messages.
//!
//! Each test has its own directory and runs the binary in it, so that paths in messages are short.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use expect_test::{Expect, expect, expect_file};
use serde_json::Value;

use crate::environment::stop;
use crate::journal_kills::KillOnDrop;
use crate::test_dir::{TestDir, mask, mask_numbers};

#[track_caller]
pub(crate) fn check(text: &str, expected: Expect) {
    expected.assert_eq(text);
}

// ---- round trip ----

#[track_caller]
fn round_trip(input: &[u8], append: &str, cat: &str) {
    let dir = TestDir::new();
    dir.run_ok("create j", b"");
    dir.run_ok(&format!("append j {append}"), input);
    let output = dir.run_ok(&format!("cat j {cat}"), b"");
    assert!(output == input, "{append}: {} bytes went in, {} came out", input.len(), output.len());
    // Then from the segments, with an empty buffer.
    dir.run_ok("append j --durability disk", b"");
    assert!(
        dir.run_ok(&format!("cat j {cat} --durability disk"), b"") == input,
        "{append}: on disk"
    );
}

#[test]
fn appended_records_are_read_back() {
    let long = [vec![b'x'; 1 << 20], b"\n".to_vec()].concat();
    let every_byte: Vec<u8> = (0..=255).cycle().take(100_000).chain(*b"\n").collect();
    let many: String = (0..200_000).map(|n| format!("line {n}\n")).collect();
    let inputs: [&[u8]; 8] =
        [b"", b"\n", b"\n\n\n", b"one\n", b"one\n\ntwo\n", &long, &every_byte, many.as_bytes()];
    for input in inputs {
        round_trip(input, "--durability disk", "");
    }
    round_trip(many.as_bytes(), "--durability disk --producer 1 --epoch 1", "");
    round_trip(b"one\ntwo\0\0three\0", "--null --durability disk", "--null");
}

#[test]
fn a_last_line_without_newline_is_a_record() {
    let dir = TestDir::new();
    dir.run_ok("append j --create", b"one\ntwo");
    dir.run_ok("append j", b"three");
    assert_eq!(dir.run_ok("cat j", b""), b"one\ntwo\nthree\n");
}

#[test]
fn whole_files_are_records() {
    let dir = TestDir::new();
    fs::write(dir.path().join("a"), "one\ntwo\n").unwrap();
    fs::write(dir.path().join("b"), "").unwrap();
    dir.run_ok("create j", b"");
    dir.run_ok("append j --record-per-file a b -", b"three\n");
    assert_eq!(dir.run_ok("cat j --null", b""), b"one\ntwo\n\0\0three\n\0");
    dir.run_ok("append j a -", b"four");
    assert_eq!(dir.run_ok("cat j --from 3 --positions", b""), b"3\tone\n4\ttwo\n5\tfour\n");
}

#[test]
fn files_are_split_at_the_delimiter() {
    let dir = TestDir::new();
    dir.run_ok("append j --create", b"a\nb\nc\nd\ne\n");
    for (line, expected) in [
        ("cat j --from 1 --to 3", "b\nc\n"),
        ("cat j --from 3", "d\ne\n"),
        ("cat j --from end", ""),
        ("cat j --to begin", ""),
        ("cat j --count 2", "a\nb\n"),
        ("cat j --count 0", ""),
        ("cat j --from 4 --to 4", ""),
        ("tail j -n 2", "d\ne\n"),
        ("tail j -n 0", ""),
        ("tail j", "a\nb\nc\nd\ne\n"),
    ] {
        assert_eq!(String::from_utf8(dir.run_ok(line, b"")).unwrap(), expected, "{line}");
    }
    dir.run_ok("subscribers j add s", b"");
    assert_eq!(dir.run_ok("cat j --subscriber s --count 2", b""), b"a\nb\n");
    assert_eq!(dir.run_ok("cat j --subscriber s --to 3", b""), b"c\n");
    assert_eq!(dir.run_ok("tail j --subscriber s", b""), b"d\ne\n");
    assert_eq!(dir.run_ok("cat j --subscriber s", b""), b"");
}

#[test]
fn an_end_before_the_start_is_a_usage_error() {
    let dir = TestDir::new();
    dir.run_ok("append j --create", b"a\nb\nc\n");
    let text = dir.session(&[("cat j --from 2 --to 1", ""), ("cat j --from end --to begin", "")]);
    assert!(text.contains("--to is position 1, before --from, 2; exchange them"), "{text}");
    assert!(text.contains("--to is position 0, before --from, 3; exchange them"), "{text}");
    assert_eq!(text.matches("exit status 2").count(), 2, "{text}");
    // A subscriber that has read them already prints nothing.
    dir.run_ok("subscribers j add s --at end", b"");
    assert_eq!(dir.run_ok("cat j --subscriber s --to 1", b""), b"");
}

#[test]
fn duplicate_is_not_appended_again() {
    let dir = TestDir::new();
    dir.run_ok("append j --create --producer 7 --epoch 1", b"a\nb\n");
    let run = dir.run("append j --producer 7 --epoch 1", b"a\nb\nc\n");
    check(
        &mask(&run.stderr),
        expect![[r#"
            topdeck: 1 record appended, position 2, durability process, TIME; 2 records were duplicates, not appended again
        "#]],
    );
    let run = dir.run("append j --producer 7 --epoch 1 --sequence 4 --durability disk", b"d\n");
    assert_eq!(run.status, 0);
    let run = dir.run("append j --producer 7 --epoch 1", b"a\nb\n");
    check(
        &mask(&run.stderr),
        expect![[r#"
            topdeck: 0 records appended, durability process, TIME; 2 records were duplicates, not appended again
        "#]],
    );
    assert_eq!(dir.run_ok("cat j", b""), b"a\nb\nc\nd\n");
}

// ---- messages ----

#[test]
fn a_session() {
    let dir = TestDir::new();
    let text = dir.session(&[
        ("stat j", ""),
        ("create j", ""),
        ("create j", ""),
        ("subscribers j", ""),
        ("subscribers j add store", ""),
        ("subscribers j add store", ""),
        ("subscribers j add dashboard --at end --droppable", ""),
        ("append j --durability disk", "one\ntwo\nthree\n"),
        ("cat j --subscriber store --count 1", ""),
        ("subscribers j", ""),
        ("checkpoint j", ""),
        ("checkpoint j here", ""),
        ("checkpoint j here --at 2", ""),
        ("checkpoint j here --at end", ""),
        ("checkpoint j here", ""),
        ("checkpoint j here --at 3 --droppable", ""),
        ("checkpoint j store --remove", ""),
        ("seek j store --to here", ""),
        ("seek j store --to begin", ""),
        ("seek j store --to 0", ""),
        ("seek j store --to 9", ""),
        ("seek j here --to 0", ""),
        ("seek j nobody --to 0", ""),
        ("seek j store --to nowhere", ""),
        ("stat j", ""),
        ("limit j --max-size 2GiB --max-age 7d --on-full drop-oldest", ""),
        ("limit j --max-size 16MiB", ""),
        ("stat j", ""),
        ("subscribers j remove here", ""),
        ("subscribers j remove dashboard", ""),
        ("subscribers j remove dashboard", ""),
        ("checkpoint j here --remove", ""),
        ("cat j --subscriber dashboard", ""),
        ("cat j --from 7", ""),
        ("cat j --to 7", ""),
    ]);
    expect_file!["../../../../testdata/cli/journal.out"].assert_eq(&text);
}

#[test]
fn stat_as_json() {
    let dir = TestDir::new();
    dir.run_ok("create j --max-age 7d", b"");
    dir.run_ok("append j --durability disk", b"one\ntwo\n");
    dir.run_ok("subscribers j add store", b"");
    dir.run_ok("checkpoint j start --at begin", b"");
    let text = String::from_utf8(dir.run_ok("stat j --json", b"")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON")["schema"], 2);
    expect_file!["../../../../testdata/cli/journal-stat.json"].assert_eq(&mask(&text));
}

#[test]
fn full_journal_error_has_a_remedy() {
    let dir = TestDir::new();
    let seq: String = (0..100_000).map(|n| format!("{n}\n")).collect();
    fs::write(dir.path().join("seq"), &seq).unwrap();
    dir.run_ok("create j --segment 16KiB --buffer 4KiB --max-size 64KiB", b"");
    let mut text = dir.session(&[("append j seq", "")]);
    let said = text.split(" of seq").next().and_then(|text| text.rsplit(' ').next());
    let next: usize = said.expect("where to go on").parse().expect("a number");
    let kept = dir.run_ok("cat j", b"");
    text += &dir.session(&[("subscribers j add slow", "")]);
    let expected = expect![[r#"
        $ topdeck journal append j seq
        topdeck: j: journal is full: segments take N KiB of at most N KiB, and there is no subscriber, so no segment can be deleted; add one (`topdeck journal subscribers j add NAME`), or raise the limit (`topdeck journal limit j --max-size …`)
        topdeck: N records appended, positions N..N, durability process, TIME; continue at record N of seq
        [exit status N]
        $ topdeck journal subscribers j add slow
        slow: subscribed at position N, N records to read; unread records are retained when a limit is reached
    "#]];
    check(&mask_numbers(&text), expected);
    let stat = dir.session(&[("stat j", "")]);
    let full = stat.lines().find(|line| line.starts_with("FULL")).expect("it is full");
    check(
        &mask_numbers(full),
        expect![[
            r#"FULL: segments take N KiB of at most N KiB, and "slow" has not passed the oldest segment; let it catch up, remove it (`topdeck journal subscribers j remove slow`), or raise the limit (`topdeck journal limit j --max-size …`)."#
        ]],
    );

    // Acknowledged records exist, and the append continues at the reported record when there is
    // space.
    assert!(seq.as_bytes().starts_with(&kept) && !kept.is_empty());
    assert_eq!(kept.iter().filter(|&&byte| byte == b'\n').count() + 1, next);
    dir.run_ok("limit j --max-size none", b"");
    dir.run_ok("append j", &seq.as_bytes()[kept.len()..]);
    assert!(dir.run_ok("cat j", b"") == seq.as_bytes());
}

#[test]
fn dropped_records_are_reported() {
    let dir = TestDir::new();
    let seq: String = (0..50_000).map(|n| format!("{n}\n")).collect();
    dir.run_ok(
        "create j --segment 16KiB --buffer 4KiB --max-size 64KiB --on-full drop-oldest",
        b"",
    );
    dir.run_ok("subscribers j add slow", b"");
    dir.run_ok("append j --producer 3 --epoch 9", seq.as_bytes());
    let gap = dir.session(&[("stat j", "")]);
    let gap = gap.lines().find(|line| line.starts_with("GAP")).expect("a gap");
    let run = dir.run("cat j --subscriber slow", b"");
    assert_eq!(run.status, 3);
    assert!(seq.as_bytes().ends_with(&run.stdout) && !run.stdout.is_empty());
    // It may take one second or more than one.
    let masked = |text: &str| mask_numbers(&mask(text)).replace("from DATE to DATE", "at DATE");
    let expected = expect![[r#"
        topdeck: j: N records are missing (positions N..N): dropped: size retention; appended at DATE; N records of producer N epoch N, sequences N to N
    "#]];
    check(&masked(&run.stderr), expected);
    let expected = expect![
        "GAP: N records are missing (positions N..N): dropped: size retention; appended at DATE; \
         N records of producer N epoch N, sequences N to N."
    ];
    check(&masked(gap), expected);
    // Reported once.
    dir.run_ok("append j --producer 3 --epoch 10", b"on\n");
    assert_eq!(dir.run_ok("cat j --subscriber slow", b""), b"on\n");
}

#[test]
fn a_record_that_is_too_large_is_named() {
    let dir = TestDir::new();
    dir.run_ok("create j --segment 1MiB", b"");
    let large = [b"fine\n".to_vec(), vec![b'x'; 1 << 20], b"\nnever\n".to_vec()].concat();
    fs::write(dir.path().join("large"), &large).unwrap();
    let text = dir.session(&[
        ("append j large", ""),
        ("append j --record-per-file large", ""),
        ("cat j", ""),
    ]);
    check(
        &text,
        expect![[r#"
        $ topdeck journal append j large
        topdeck: large: record 2 exceeds the record size limit (256 KiB) of j, a quarter of its segment size; create a journal with a larger --segment
        topdeck: 1 record appended, position 0, durability process, TIME; continue at record 2 of large
        [exit status 1]
        $ topdeck journal append j --record-per-file large
        topdeck: large exceeds the record size limit (256 KiB) of j, a quarter of its segment size; create a journal with a larger --segment
        topdeck: no record was appended
        [exit status 1]
        $ topdeck journal cat j
        fine
    "#]],
    );
}

#[test]
fn subscriber_in_use_is_an_error() {
    let dir = TestDir::new();
    dir.run_ok("append j --create", b"a\n");
    dir.run_ok("subscribers j add s", b"");
    let mut tail = dir.command("tail -f j --subscriber s");
    let mut tail = KillOnDrop(tail.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(tail.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let text = dir.session(&[("cat j --subscriber s", ""), ("seek j s --to begin", "")]);
    check(
        &text,
        expect![[r#"
        $ topdeck journal cat j --subscriber s
        topdeck: j: subscriber "s" is in use by another reader; stop it first
        [exit status 1]
        $ topdeck journal seek j s --to begin
        topdeck: j: subscriber "s" is in use by another reader; stop it first
        [exit status 1]
    "#]],
    );
}

#[test]
fn invalid_command_lines() {
    let dir = TestDir::new();
    let text = dir.session(&[
        ("create j --max-size 1MB", ""),
        ("create j --max-age 7", ""),
        ("create j --buffer 5000", ""),
        ("create j --segment 1KiB", ""),
        ("create j --max-size 1MiB", ""),
        ("create j --compression gzip", ""),
        ("append j", ""),
        ("append j --producer 7", ""),
        ("append j --durability all", ""),
        ("append j no-such-file", ""),
        ("cat j --from nowhere", ""),
        ("cat j --from 1 --subscriber s", ""),
        ("limit j", ""),
        ("checkpoint j --remove", ""),
        ("seek j s", ""),
        ("verify j", ""),
    ]);
    expect_file!["../../../../testdata/cli/journal-errors.out"].assert_eq(&text);
}

#[test]
fn intact_journal_verifies() {
    let dir = TestDir::new();
    dir.run_ok("append j --create --durability disk", b"a\nb\n");
    for line in ["verify j", "repair j"] {
        let run = dir.run(line, b"");
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{line}");
        assert!(run.stdout.starts_with(b"j: intact\n"), "{}", String::from_utf8_lossy(&run.stdout));
    }
    let json: Value = serde_json::from_slice(&dir.run_ok("verify j --json", b"")).expect("JSON");
    assert_eq!(
        (&json["intact"], &json["damages"]),
        (&Value::Bool(true), &Value::Array(Vec::new()))
    );
}

/// Changes a byte of a file.
fn damage(path: &Path, at: impl FnOnce(usize) -> usize) {
    let mut bytes = fs::read(path).expect("the file is there");
    let at = at(bytes.len());
    bytes[at] ^= 0x55;
    fs::write(path, bytes).expect("the file can be written");
}

#[test]
fn damage_is_reported_and_repaired() {
    let dir = TestDir::new();
    dir.run_ok("create j --compression none", b"");
    dir.run_ok("subscribers j add store", b"");
    dir.run_ok("subscribers j add other", b"");
    for n in 0..3 {
        // Each in its own frame.
        dir.run_ok(
            "append j --durability disk",
            format!("first of {n}\nsecond of {n}\n").as_bytes(),
        );
    }
    let segment = dir.path().join("j/segments/0000000000000000.seg");
    let bytes = fs::read(&segment).unwrap();
    let middle =
        bytes.windows(10).position(|window| window == b"first of 1").expect("not compressed");
    damage(&segment, |_| middle);
    damage(&dir.path().join("j/checkpoints/other"), |_| 20);
    let text = dir.session(&[
        ("verify j", ""),
        ("cat j --positions", ""),
        ("cat j --subscriber store", ""),
        ("repair j", ""),
        ("verify j", ""),
        ("cat j --positions", ""),
        ("append j", "on\n"),
        ("cat j --subscriber store", ""),
        ("stat j", ""),
    ]);
    expect_file!["../../../../testdata/cli/journal-damaged.out"].assert_eq(&text);
}

#[test]
fn damaged_settings_and_checkpoints_are_repaired() {
    let dir = TestDir::new();
    dir.run_ok("append j --create --durability disk", b"a\nb\n");
    dir.run_ok("subscribers j add store --at 1", b"");
    for file in ["j/journal", "j/checkpoints/store"] {
        // Both copies.
        let path = dir.path().join(file);
        let len = fs::metadata(&path).unwrap().len() as usize;
        fs::write(&path, vec![0x55; len]).unwrap();
    }
    let text = dir.session(&[
        ("stat j", ""),
        ("append j", "c\n"),
        ("verify j", ""),
        ("repair j", ""),
        ("verify j", ""),
        ("cat j --subscriber store", ""),
    ]);
    expect_file!["../../../../testdata/cli/journal-settings.out"].assert_eq(&text);
}

#[test]
fn a_journal_in_use_is_not_repaired() {
    let dir = TestDir::new();
    dir.run_ok("append j --create", b"a\n");
    let mut tail = KillOnDrop(dir.command("tail -f j").stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(tail.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let text = dir.session(&[("repair j", "")]);
    check(
        &text,
        expect![[r#"
        $ topdeck journal repair j
        topdeck: cannot open journal j: in use by another process; close it there first
        [exit status 1]
    "#]],
    );
}

/// Ctrl-Z on a `tail -f` that was started first.
#[test]
fn stopped_reader_does_not_block_writers() {
    let dir = TestDir::new();
    dir.run_ok("create j --buffer 4KiB", b"");
    dir.run_ok("append j", b"a\n");
    let mut tail = KillOnDrop(dir.command("tail -f j").stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(tail.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    stop(tail.0.id());
    // Many times the buffer size.
    dir.run_ok("append j", &b"0123456789\n".repeat(10_000));
}

#[test]
fn bench_measures_and_cleans_up() {
    let dir = TestDir::new();
    for line in [
        "bench . --records 2000 --read --exclusive",
        "bench . --durability disk --records 20 --producers 2",
    ] {
        let text = String::from_utf8(dir.run_ok(line, b"")).unwrap();
        for word in ["records/s", " per record", "bytes per payload byte"] {
            assert!(text.contains(word), "{word} is missing in\n{text}");
        }
        assert_eq!(text.contains(", max "), line.contains("disk"), "{text}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn help_has_examples_and_exit_statuses() {
    let dir = TestDir::new();
    for name in [
        "create",
        "append",
        "cat",
        "tail",
        "stat",
        "subscribers",
        "checkpoint",
        "seek",
        "limit",
        "verify",
        "repair",
        "bench",
    ] {
        let help = String::from_utf8(dir.run_ok(&format!("{name} --help"), b"")).unwrap();
        for word in ["Examples:", "Exit status:"] {
            assert!(help.contains(word), "{name}: {word} is missing in\n{help}");
        }
    }
}
