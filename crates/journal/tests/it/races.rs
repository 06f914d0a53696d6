//! Processes that open, create, close, stop and wake each other concurrently.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use disk::OsDisk;
use journal::*;

use crate::processes::{
    ChildArguments, ChildProcess, TestDir, Xorshift64, open, print_line, sizes, wait_for,
};

const SHORT_WAIT: Duration = Duration::from_millis(300);
/// Generous limit: only a hang exceeds it.
const LONG_WAIT: Duration = Duration::from_secs(60);

fn foreground() -> Options {
    Options { has_background_thread: false, ..Options::default() }
}

/// Nothing is written to segments except on request.
fn manual_options() -> Options {
    Options { flush_interval: Duration::from_secs(3600), sync_interval: None, ..Options::default() }
}

/// A process that executes commands, one a line, and reports the results.
pub(crate) fn server(part: ChildArguments) {
    let dir = part.path(0).to_owned();
    let options = match part.arguments[1].as_str() {
        "foreground" => foreground(),
        "lazy" => manual_options(),
        "alone" => Options { is_exclusive: true, ..Options::default() },
        _ => Options::default(),
    };
    let mut journal = None;
    let mut subscribers = Vec::new();
    loop {
        let line = part.receive_line();
        let mut words = line.split(' ');
        let word = words.next().unwrap();
        let argument = words.next().unwrap_or_default();
        let number = || argument.parse::<u64>().unwrap();
        match (word, &journal) {
            ("create", _) => {
                print_line(&describe_result(Journal::create(
                    &OsDisk,
                    &dir,
                    random_id(),
                    0,
                    &tiny(),
                )));
            }
            ("open", _) => match open(&dir, &options) {
                Ok(opened) => {
                    journal = Some(opened);
                    print_line("ok");
                }
                Err(error) => print_line(&describe_result::<()>(Err(error))),
            },
            ("close", _) => {
                print_line(&describe_result(journal.take().unwrap().close()));
            }
            ("drop", _) => {
                drop(journal.take());
                print_line("ok");
            }
            ("append", Some(journal)) => {
                print_line(&describe_result(journal.append(argument.as_bytes(), Level::Process)))
            }
            ("durable", Some(journal)) => {
                print_line(&describe_result(journal.append(argument.as_bytes(), Level::Disk)))
            }
            ("large", Some(journal)) => {
                print_line(&describe_result(
                    journal.append(&vec![7; number() as usize], Level::Process),
                ));
            }
            ("endless", Some(journal)) => {
                print_line("ok");
                for i in 0u64.. {
                    let _ = journal.append(&i.to_le_bytes(), Level::Process).unwrap();
                }
            }
            // Opens, appends and closes this many times, as the producer given second.
            ("cycles", _) => {
                let producer = words.next().unwrap().parse().unwrap();
                for sequence in 0..number() {
                    let journal = open(&dir, &options).unwrap();
                    let identity = BatchIdentity { producer, epoch: 1, sequence };
                    let bytes = [producer.to_le_bytes(), sequence.to_le_bytes()].concat();
                    let level = if sequence % 3 == 0 { Level::Disk } else { Level::Process };
                    let ack = journal.append_batch(Some(identity), &[&bytes], level).unwrap();
                    assert!(!ack.is_duplicate);
                    if sequence % 2 == 0 {
                        journal.close().unwrap();
                    }
                }
                print_line("ok");
            }
            ("subscribe", Some(journal)) => match journal.subscribe(argument) {
                Ok(subscriber) => {
                    subscribers.push(subscriber);
                    print_line("ok");
                }
                Err(error) => print_line(&describe_result::<()>(Err(error))),
            },
            // Commits as fast as possible, forever.
            ("commits", Some(journal)) => {
                let mut subscriber = journal.subscribe(argument).unwrap();
                print_line("ok");
                loop {
                    subscriber.commit(0, Level::Process).unwrap();
                }
            }
            ("quit", _) => return,
            other => panic!("BUG: {other:?}"),
        }
    }
}

fn describe_result<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(Error::AlreadyExists { .. }) => "exists".to_owned(),
        Err(Error::InUse { is_exclusive: alone, .. }) => format!("busy {alone}"),
        Err(Error::CheckpointLocked { .. }) => "subscriber busy".to_owned(),
        Err(Error::AppendTimeout { .. }) => "stalled".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn start_servers(count: usize, dir: &Path, options: &str) -> Vec<ChildProcess> {
    (0..count).map(|_| start_server(dir, options)).collect()
}

fn start_server(dir: &Path, options: &str) -> ChildProcess {
    ChildProcess::start("servant", &[dir.to_str().unwrap(), options])
}

#[track_caller]
fn check(child: &mut ChildProcess, order: &str, answer: &str) {
    child.send_line(order);
    assert_eq!(child.line(), answer, "{order}");
}

fn tiny() -> Settings {
    sizes(4 << 10, 16 << 10)
}

/// All current records.
fn all(journal: &Journal) -> Vec<Vec<u8>> {
    let mut reader = journal.reader(StartPosition::First).unwrap();
    let mut records = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        match item {
            ReadItem::Batch(batch) => records.extend(batch.records().map(|r| r.bytes.to_vec())),
            ReadItem::Gap(gap) => panic!("nothing is missing, but: {gap:?}"),
        }
    }
    records
}

/// Runs something that must end, with any result.
#[track_caller]
fn run_with_timeout<T: Send + 'static>(
    what: &str,
    seconds: u64,
    run: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(run()));
    let result = receiver.recv_timeout(Duration::from_secs(seconds));
    result.unwrap_or_else(|_| panic!("{what} did not end within {seconds} s"))
}

#[test]
fn concurrent_create_succeeds_once() {
    for _ in 0..5 {
        let directory = TestDir::new("create");
        let mut children = start_servers(6, &directory.journal(), "default");
        children.iter_mut().for_each(|child| child.send_line("create"));
        let mut said: Vec<String> = children.iter_mut().map(ChildProcess::line).collect();
        said.sort_unstable();
        assert_eq!(said, ["exists", "exists", "exists", "exists", "exists", "ok"]);
        check(&mut children[3], "open", "ok");
        check(&mut children[3], "append x", "ok");
        assert_eq!(all(&directory.open()), [b"x"]);
    }
}

#[test]
fn concurrent_open_of_a_new_journal_succeeds() {
    let directory = TestDir::new("open");
    directory.create(&tiny());
    let mut children = start_servers(12, &directory.journal(), "default");
    for _ in 0..5 {
        children.iter_mut().for_each(|child| child.send_line("open"));
        children.iter_mut().for_each(|child| child.expect("ok"));
        children.iter_mut().for_each(|child| child.send_line("append x"));
        children.iter_mut().for_each(|child| child.expect("ok"));
        children.iter_mut().for_each(|child| child.send_line("drop"));
        children.iter_mut().for_each(|child| child.expect("ok"));
    }
    assert_eq!(all(&directory.open()).len(), 60);
}

#[test]
fn opening_while_others_close_loses_nothing() {
    let directory = TestDir::new("close");
    directory.create(&tiny());
    let mut children = start_servers(4, &directory.journal(), "default");
    for (producer, child) in children.iter_mut().enumerate() {
        child.send_line(&format!("cycles 40 {producer}"));
    }
    children.iter_mut().for_each(|child| child.expect("ok"));
    let mut next = [0; 4];
    for record in all(&directory.open()) {
        let number = |i: usize| u64::from_le_bytes(record[i * 8..][..8].try_into().unwrap());
        assert_eq!(number(1), next[number(0) as usize]);
        next[number(0) as usize] += 1;
    }
    assert_eq!(next, [40; 4]);
}

#[test]
fn exclusive_open_is_exclusive() {
    let directory = TestDir::new("alone");
    directory.create(&tiny());
    let mut other = start_server(&directory.journal(), "default");
    let mut alone = start_server(&directory.journal(), "alone");
    check(&mut other, "open", "ok");
    check(&mut alone, "open", "busy true");
    other.kill();
    check(&mut alone, "open", "ok");
    let mut other = start_server(&directory.journal(), "default");
    check(&mut other, "open", "busy false");
    check(&mut alone, "append x", "ok");
    alone.kill();
    check(&mut other, "open", "ok");
    check(&mut other, "append y", "ok");
    assert_eq!(all(&directory.open()), [b"x", b"y"]);
}

#[test]
fn handle_limit_is_reported_and_released() {
    const MAX: usize = 128;
    let directory = TestDir::new("crowded");
    directory.create(&tiny());
    let mut child = start_server(&directory.journal(), "default");
    check(&mut child, "open", "ok");
    let mut handles: Vec<Journal> =
        (1..MAX).map(|_| open(&directory.journal(), &foreground()).unwrap()).collect();
    let crowded = open(&directory.journal(), &foreground());
    assert!(matches!(crowded, Err(Error::TooManyHandles { max: MAX, .. })), "{crowded:?}");
    for (i, handle) in handles.iter().enumerate() {
        assert_eq!(handle.append(b"x", Level::Process).unwrap().positions.start, i as u64);
    }
    handles.pop();
    handles.push(open(&directory.journal(), &foreground()).unwrap());
    child.kill();
    handles.push(open(&directory.journal(), &foreground()).unwrap());
    assert_eq!(all(&handles[5]).len(), MAX - 1);
}

#[test]
fn a_subscriber_is_one_readers_at_a_time() {
    let directory = TestDir::new("subscriber");
    directory.create(&tiny());
    let journal = directory.open();
    journal.add_subscriber("s", StartPosition::First, true).unwrap();
    let mut children = start_servers(2, &directory.journal(), "default");
    for child in &mut children {
        check(child, "open", "ok");
    }
    check(&mut children[0], "subscribe s", "ok");
    check(&mut children[1], "subscribe s", "subscriber busy");
    assert!(matches!(journal.subscribe("s"), Err(Error::CheckpointLocked { .. })));
    assert!(matches!(
        journal.set_checkpoint("s", StartPosition::End),
        Err(Error::CheckpointLocked { .. })
    ));
    assert!(matches!(journal.remove_checkpoint("s"), Err(Error::CheckpointLocked { .. })));
    children[0].kill();
    check(&mut children[1], "subscribe s", "ok");
}

#[test]
fn records_of_another_process_are_read_at_once() {
    let directory = TestDir::new("at-once");
    directory.create(&Settings::default());
    let journal = open(&directory.journal(), &manual_options()).unwrap();
    let mut child = start_server(&directory.journal(), "lazy");
    check(&mut child, "open", "ok");
    let mut reader = journal.reader(StartPosition::End).unwrap();
    for i in 0..50 {
        check(&mut child, &format!("append {i}"), "ok");
        match reader.next().unwrap() {
            Some(ReadItem::Batch(batch)) => {
                let records: Vec<_> = batch.records().map(|r| r.bytes.to_vec()).collect();
                assert_eq!(records, [i.to_string().into_bytes()]);
            }
            other => panic!("{other:?}"),
        }
        assert!(reader.next().unwrap().is_none());
    }
}

/// Waiters are woken: here they never poll.
#[test]
fn waiter_is_woken_by_another_process() {
    const ROUNDS: u32 = 20;
    let directory = TestDir::new("woken");
    directory.create(&Settings::default());
    let never = Options { recheck_interval: Duration::from_secs(3600), ..manual_options() };
    let journal = open(&directory.journal(), &never).unwrap();
    let mut child = start_server(&directory.journal(), "lazy");
    check(&mut child, "open", "ok");
    let mut reader = journal.reader(StartPosition::End).unwrap();
    for _ in 0..ROUNDS {
        std::thread::scope(|scope| {
            let (tid, is_known) = mpsc::channel();
            let reader = &mut reader;
            let waiting = scope.spawn(move || {
                tid.send(rustix::thread::gettid()).unwrap();
                reader.wait(Some(Duration::from_secs(60))).unwrap()
            });
            let tid = is_known.recv().unwrap().as_raw_nonzero();
            wait_for("the reader sleeps", 60, || is_asleep(&format!("self/task/{tid}")));
            check(&mut child, "append x", "ok");
            assert!(waiting.join().unwrap(), "nobody woke it");
        });
        while reader.next().unwrap().is_some() {}
    }

    let fd = reader.readiness().unwrap().try_clone_to_owned().unwrap();
    for _ in 0..ROUNDS {
        assert!(reader.next().unwrap().is_none());
        assert!(rustix::io::read(&fd, &mut [0; 8]).is_err(), "ready for nothing");
        check(&mut child, "append x", "ok");
        wait_for("the descriptor becomes readable", 60, || {
            rustix::io::read(&fd, &mut [0; 8]).is_ok()
        });
        while reader.next().unwrap().is_some() {}
        // A record appended between the two checks may have made it ready again.
        let _ = rustix::io::read(&fd, &mut [0; 8]);
    }
}

/// Whether a thread sleeps, by its directory in `/proc`.
fn is_asleep(directory: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{directory}/stat")).unwrap();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}

/// The process that writes segments is stopped, but not dead.
#[test]
fn append_times_out_while_the_writer_is_stopped() {
    let directory = TestDir::new("stopped");
    directory.create(&tiny());
    let mut stopped = start_server(&directory.journal(), "default");
    check(&mut stopped, "open", "ok");
    check(&mut stopped, "durable x", "ok");
    let options = Options { append_timeout: SHORT_WAIT, ..Options::default() };
    let journal = open(&directory.journal(), &options).unwrap();
    stopped.stop(true);
    let mut accepted = 1;
    // Only that it ends matters: its options set a timeout of 300 ms.
    let error = loop {
        match journal.append(&[7; 100], Level::Process) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 1000, "the buffer takes all");
    };
    assert!(matches!(error, Error::AppendTimeout { .. }), "{error}");
    assert!(matches!(journal.append(&[7; 3000], Level::Process), Err(Error::NotWriter { .. })));
    assert!(matches!(journal.flush(Level::Disk), Err(Error::AppendTimeout { .. })));
    assert_eq!(all(&journal).len(), accepted, "reading goes on");
    stopped.stop(false);
    let ack = wait_for_append(&journal);
    assert_eq!(ack.positions.start, accepted as u64);
    assert_eq!(all(&journal).len(), accepted + 1);
    check(&mut stopped, "append y", "ok");
}

fn wait_for_append(journal: &Journal) -> Ack {
    let mut last = None;
    wait_for("an append succeeds", 60, || {
        last = journal.append(&[8; 100], Level::Disk).ok();
        last.is_some()
    });
    last.unwrap()
}

/// Wherever a process is stopped, even while it holds the append lock, others do not wait forever.
#[test]
fn process_stopped_anywhere_blocks_no_other() {
    let directory = TestDir::new("stopped-anywhere");
    directory.create(&sizes(64 << 10, 1 << 20));
    let mut random = Xorshift64::new(9);
    let mut child = start_server(&directory.journal(), "default");
    check(&mut child, "open", "ok");
    check(&mut child, "endless", "ok");
    let options = Options { append_timeout: SHORT_WAIT, ..Options::default() };
    let journal = std::sync::Arc::new(open(&directory.journal(), &options).unwrap());
    for _ in 0..30 {
        std::thread::sleep(random.micros(3000));
        child.stop(true);
        let same = std::sync::Arc::clone(&journal);
        match run_with_timeout("an append", 60, move || same.append(b"x", Level::Process)) {
            Ok(_) | Err(Error::AppendTimeout { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        child.stop(false);
    }
    let before = wait_for_append(&journal);
    child.kill();
    assert!(wait_for_append(&journal).positions.start > before.positions.start);
}

/// A read-only process without a background thread may be the first to open a journal.
#[test]
fn first_opener_without_thread_blocks_no_writer() {
    let directory = TestDir::new("no-thread");
    directory.create(&tiny());
    let mut idle = start_server(&directory.journal(), "foreground");
    check(&mut idle, "open", "ok");
    let options = Options { append_timeout: LONG_WAIT, ..Options::default() };
    let journal = open(&directory.journal(), &options).unwrap();
    for i in 0..200 {
        let ack = journal.append(&[7; 100], Level::Process);
        assert!(ack.is_ok(), "{i}: {}", ack.unwrap_err());
    }
}

/// The same after it has written something itself.
#[test]
fn a_writer_without_a_thread_that_is_idle_stalls_no_other() {
    let directory = TestDir::new("no-thread-idle");
    directory.create(&tiny());
    let mut idle = start_server(&directory.journal(), "foreground");
    check(&mut idle, "open", "ok");
    for order in ["append x", "durable x", "large 3000"] {
        check(&mut idle, order, "ok");
        let options = Options { append_timeout: LONG_WAIT, ..Options::default() };
        let journal = open(&directory.journal(), &options).unwrap();
        for i in 0..200 {
            let ack = journal.append(&[7; 100], Level::Process);
            assert!(ack.is_ok(), "after {order}, {i}: {}", ack.unwrap_err());
        }
        let ack = journal.append(&[7; 3000], Level::Disk);
        assert!(ack.is_ok(), "after {order}: {}", ack.unwrap_err());
    }
}

/// A batch larger than the buffer finds the journal full in one process; later there is space.
#[test]
fn after_a_full_journal_has_room_again_every_process_can_append() {
    let directory = TestDir::new("full");
    let limits = Limits { bytes_max: Some(48 << 10), age_max: None, on_full: LimitPolicy::Reject };
    directory.create(&Settings { limits, compression: Compression::None, ..tiny() });
    let journal = directory.open();
    journal.add_subscriber("s", StartPosition::First, true).unwrap();
    let mut child = start_server(&directory.journal(), "default");
    check(&mut child, "open", "ok");
    // This process holds the lease, and the buffer is empty when the journal is full.
    let full = (0..100).find_map(|_| journal.append(&[7; 3000], Level::Disk).err()).unwrap();
    assert!(matches!(full, Error::Full(_)), "{full}");
    let mut subscriber = journal.subscribe("s").unwrap();
    while subscriber.next().unwrap().is_some() {}
    let end = subscriber.position();
    // By another handle that does not write.
    drop(subscriber);
    let other = directory.open();
    let mut subscriber = other.subscribe("s").unwrap();
    while subscriber.next().unwrap().is_some() {}
    subscriber.commit(end, Level::Process).unwrap();
    wait_for("another process can append", 10, || {
        child.send_line("append x");
        child.line() == "ok"
    });
}

/// A subscriber that is inspected during a commit is never reported as corrupt.
#[test]
fn checkpoint_is_consistent_while_committed() {
    let directory = TestDir::new("commits");
    directory.create(&tiny());
    let journal = directory.open();
    journal.add_subscriber("s", StartPosition::First, true).unwrap();
    let mut child = start_server(&directory.journal(), "default");
    check(&mut child, "open", "ok");
    check(&mut child, "commits s", "ok");
    for i in 0..20_000 {
        let checkpoint = journal.checkpoint("s").unwrap();
        assert!(!checkpoint.is_degraded, "look {i}: {checkpoint:?}");
        if i % 100 == 0 {
            let busy = journal.subscribe("s");
            assert!(matches!(busy, Err(Error::CheckpointLocked { .. })), "look {i}: {busy:?}");
        }
    }
}

/// A subscriber is removed while another process opens it: an open subscriber is always the
/// existing one.
#[test]
fn a_subscriber_is_not_given_out_after_it_was_removed() {
    let directory = TestDir::new("removed");
    directory.create(&tiny());
    let journal = directory.open();
    let _ = journal.append(b"x", Level::Process).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // Both fail while it is held.
                let _ = journal.remove_checkpoint("s");
                let _ = journal.add_subscriber("s", StartPosition::First, true);
            }
        });
        let mut had = 0;
        // The other process holds it most of the time, so many attempts fail.
        for _ in 0..100_000 {
            if had == 1000 {
                break;
            }
            let Ok(mut subscriber) = journal.subscribe("s") else { continue };
            had += 1;
            while subscriber.next().unwrap().is_some() {}
            subscriber.commit(1, Level::Process).unwrap();
            // While it is open, it cannot be removed.
            let position = journal.checkpoint("s").map(|checkpoint| checkpoint.position);
            stop.store(!matches!(position, Ok(1)), std::sync::atomic::Ordering::Relaxed);
            assert!(matches!(position, Ok(1)), "{position:?} after {had}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// A reader as fast as the writer reaches the buffer just when it is written to a segment.
#[test]
fn reader_following_the_writer_sees_no_gap() {
    let directory = TestDir::new("heels");
    directory.create(&tiny());
    let options = Options { flush_interval: Duration::ZERO, ..Options::default() };
    let journal = open(&directory.journal(), &options).unwrap();
    const RECORDS: u64 = 200_000;
    std::thread::scope(|scope| {
        // More threads than CPUs, so that they are preempted anywhere.
        for _ in 0..8 {
            scope.spawn(|| {
                let mut reader = journal.reader(StartPosition::First).unwrap();
                while reader.position() < RECORDS {
                    match reader.next().unwrap() {
                        Some(ReadItem::Gap(gap)) => panic!("nothing is missing, but: {gap:?}"),
                        Some(ReadItem::Batch(_)) | None => {}
                    }
                }
            });
        }
        for i in 0..RECORDS {
            let _ = journal.append(&i.to_le_bytes(), Level::Process).unwrap();
        }
    });
}
