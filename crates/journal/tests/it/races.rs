//! Processes that open, create, close, stop and wake each other at the same time.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use disk::OsDisk;
use journal::*;

use crate::processes::{Child, Folder, Part, Random, open, say, sizes, wait_for};

const FEW: Duration = Duration::from_millis(300);
/// Where nobody is to wait for long: only a machine that hangs takes it.
const LONG: Duration = Duration::from_secs(60);

fn foreground() -> Options {
    Options { background: false, ..Options::default() }
}

/// Nothing is written to segments unless somebody asks.
fn lazy() -> Options {
    Options { flush_every: Duration::from_secs(3600), sync_every: None, ..Options::default() }
}

/// A process that does what it is told, a word a line, and says what came of it.
pub(crate) fn servant(part: Part) {
    let dir = part.path(0).to_owned();
    let options = match part.arguments[1].as_str() {
        "foreground" => foreground(),
        "lazy" => lazy(),
        "alone" => Options { alone: true, ..Options::default() },
        _ => Options::default(),
    };
    let mut journal = None;
    let mut subscribers = Vec::new();
    loop {
        let line = part.hear();
        let mut words = line.split(' ');
        let word = words.next().unwrap();
        let argument = words.next().unwrap_or_default();
        let number = || argument.parse::<u64>().unwrap();
        match (word, &journal) {
            ("create", _) => {
                say(&told(Journal::create(&OsDisk, &dir, random_id(), 0, &tiny())));
            }
            ("open", _) => match open(&dir, &options) {
                Ok(opened) => {
                    journal = Some(opened);
                    say("ok");
                }
                Err(error) => say(&told::<()>(Err(error))),
            },
            ("close", _) => {
                say(&told(journal.take().unwrap().close()));
            }
            ("drop", _) => {
                drop(journal.take());
                say("ok");
            }
            ("append", Some(journal)) => {
                say(&told(journal.append(argument.as_bytes(), Level::Process)))
            }
            ("durable", Some(journal)) => {
                say(&told(journal.append(argument.as_bytes(), Level::Disk)))
            }
            ("large", Some(journal)) => {
                say(&told(journal.append(&vec![7; number() as usize], Level::Process)));
            }
            ("endless", Some(journal)) => {
                say("ok");
                for i in 0u64.. {
                    let _ = journal.append(&i.to_le_bytes(), Level::Process).unwrap();
                }
            }
            // Opens, appends and closes so many times, as the producer with the second number.
            ("cycles", _) => {
                let producer = words.next().unwrap().parse().unwrap();
                for sequence in 0..number() {
                    let journal = open(&dir, &options).unwrap();
                    let identity = Identity { producer, boot: 1, sequence };
                    let bytes = [producer.to_le_bytes(), sequence.to_le_bytes()].concat();
                    let level = if sequence % 3 == 0 { Level::Disk } else { Level::Process };
                    let ack = journal.append_batch(Some(identity), &[&bytes], level).unwrap();
                    assert!(!ack.repeated);
                    if sequence % 2 == 0 {
                        journal.close().unwrap();
                    }
                }
                say("ok");
            }
            ("subscribe", Some(journal)) => match journal.subscribe(argument) {
                Ok(subscriber) => {
                    subscribers.push(subscriber);
                    say("ok");
                }
                Err(error) => say(&told::<()>(Err(error))),
            },
            // Commits as fast as it can, for ever.
            ("commits", Some(journal)) => {
                let mut subscriber = journal.subscribe(argument).unwrap();
                say("ok");
                loop {
                    subscriber.commit(0, Level::Process).unwrap();
                }
            }
            ("quit", _) => return,
            other => panic!("BUG: {other:?}"),
        }
    }
}

fn told<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(Error::Exists { .. }) => "exists".to_owned(),
        Err(Error::Busy { alone, .. }) => format!("busy {alone}"),
        Err(Error::SubscriberBusy { .. }) => "subscriber busy".to_owned(),
        Err(Error::Stalled { .. }) => "stalled".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn servants(count: usize, dir: &Path, options: &str) -> Vec<Child> {
    (0..count).map(|_| servant_of(dir, options)).collect()
}

fn servant_of(dir: &Path, options: &str) -> Child {
    Child::start("servant", &[dir.to_str().unwrap(), options])
}

#[track_caller]
fn check(child: &mut Child, order: &str, answer: &str) {
    child.tell(order);
    assert_eq!(child.line(), answer, "{order}");
}

fn tiny() -> Settings {
    sizes(4 << 10, 16 << 10)
}

/// All records now.
fn all(journal: &Journal) -> Vec<Vec<u8>> {
    let mut reader = journal.reader(Start::Begin).unwrap();
    let mut records = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Batch(batch) => records.extend(batch.records().map(|r| r.bytes.to_vec())),
            Item::Gap(gap) => panic!("nothing is missing, but: {gap:?}"),
        }
    }
    records
}

/// Runs something that must come to an end, whatever it comes to.
#[track_caller]
fn ends<T: Send + 'static>(
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
fn of_many_who_create_the_same_journal_one_does() {
    for _ in 0..5 {
        let folder = Folder::new("create");
        let mut children = servants(6, &folder.journal(), "default");
        children.iter_mut().for_each(|child| child.tell("create"));
        let mut said: Vec<String> = children.iter_mut().map(Child::line).collect();
        said.sort_unstable();
        assert_eq!(said, ["exists", "exists", "exists", "exists", "exists", "ok"]);
        check(&mut children[3], "open", "ok");
        check(&mut children[3], "append x", "ok");
        assert_eq!(all(&folder.open()), [b"x"]);
    }
}

#[test]
fn many_who_open_a_new_journal_at_once_all_have_it() {
    let folder = Folder::new("open");
    folder.create(&tiny());
    let mut children = servants(12, &folder.journal(), "default");
    for _ in 0..5 {
        children.iter_mut().for_each(|child| child.tell("open"));
        children.iter_mut().for_each(|child| child.expect("ok"));
        children.iter_mut().for_each(|child| child.tell("append x"));
        children.iter_mut().for_each(|child| child.expect("ok"));
        children.iter_mut().for_each(|child| child.tell("drop"));
        children.iter_mut().for_each(|child| child.expect("ok"));
    }
    assert_eq!(all(&folder.open()).len(), 60);
}

#[test]
fn opening_while_others_close_loses_nothing() {
    let folder = Folder::new("close");
    folder.create(&tiny());
    let mut children = servants(4, &folder.journal(), "default");
    for (producer, child) in children.iter_mut().enumerate() {
        child.tell(&format!("cycles 40 {producer}"));
    }
    children.iter_mut().for_each(|child| child.expect("ok"));
    let mut next = [0; 4];
    for record in all(&folder.open()) {
        let number = |i: usize| u64::from_le_bytes(record[i * 8..][..8].try_into().unwrap());
        assert_eq!(number(1), next[number(0) as usize]);
        next[number(0) as usize] += 1;
    }
    assert_eq!(next, [40; 4]);
}

#[test]
fn who_wants_it_alone_has_it_alone_or_not_at_all() {
    let folder = Folder::new("alone");
    folder.create(&tiny());
    let mut other = servant_of(&folder.journal(), "default");
    let mut alone = servant_of(&folder.journal(), "alone");
    check(&mut other, "open", "ok");
    check(&mut alone, "open", "busy true");
    other.kill();
    check(&mut alone, "open", "ok");
    let mut other = servant_of(&folder.journal(), "default");
    check(&mut other, "open", "busy false");
    check(&mut alone, "append x", "ok");
    alone.kill();
    check(&mut other, "open", "ok");
    check(&mut other, "append y", "ok");
    assert_eq!(all(&folder.open()), [b"x", b"y"]);
}

#[test]
fn one_too_many_is_told_so_and_has_it_when_another_closes() {
    const MAX: usize = 128;
    let folder = Folder::new("crowded");
    folder.create(&tiny());
    let mut child = servant_of(&folder.journal(), "default");
    check(&mut child, "open", "ok");
    let mut handles: Vec<Journal> =
        (1..MAX).map(|_| open(&folder.journal(), &foreground()).unwrap()).collect();
    let crowded = open(&folder.journal(), &foreground());
    assert!(matches!(crowded, Err(Error::Crowded { max: MAX, .. })), "{crowded:?}");
    for (i, handle) in handles.iter().enumerate() {
        assert_eq!(handle.append(b"x", Level::Process).unwrap().positions.start, i as u64);
    }
    handles.pop();
    handles.push(open(&folder.journal(), &foreground()).unwrap());
    child.kill();
    handles.push(open(&folder.journal(), &foreground()).unwrap());
    assert_eq!(all(&handles[5]).len(), MAX - 1);
}

#[test]
fn a_subscriber_is_one_readers_at_a_time() {
    let folder = Folder::new("subscriber");
    folder.create(&tiny());
    let journal = folder.open();
    journal.add_subscriber("s", Start::Begin, true).unwrap();
    let mut children = servants(2, &folder.journal(), "default");
    for child in &mut children {
        check(child, "open", "ok");
    }
    check(&mut children[0], "subscribe s", "ok");
    check(&mut children[1], "subscribe s", "subscriber busy");
    assert!(matches!(journal.subscribe("s"), Err(Error::SubscriberBusy { .. })));
    assert!(matches!(journal.set_checkpoint("s", Start::End), Err(Error::SubscriberBusy { .. })));
    assert!(matches!(journal.remove_checkpoint("s"), Err(Error::SubscriberBusy { .. })));
    children[0].kill();
    check(&mut children[1], "subscribe s", "ok");
}

#[test]
fn what_another_process_appended_is_read_at_once() {
    let folder = Folder::new("at-once");
    folder.create(&Settings::default());
    let journal = open(&folder.journal(), &lazy()).unwrap();
    let mut child = servant_of(&folder.journal(), "lazy");
    check(&mut child, "open", "ok");
    let mut reader = journal.reader(Start::End).unwrap();
    for i in 0..50 {
        check(&mut child, &format!("append {i}"), "ok");
        match reader.next().unwrap() {
            Some(Item::Batch(batch)) => {
                let records: Vec<_> = batch.records().map(|r| r.bytes.to_vec()).collect();
                assert_eq!(records, [i.to_string().into_bytes()]);
            }
            other => panic!("{other:?}"),
        }
        assert!(reader.next().unwrap().is_none());
    }
}

/// Who waits is woken: it never looks by itself here.
#[test]
fn who_waits_is_woken_by_another_process() {
    const ROUNDS: u32 = 20;
    let folder = Folder::new("woken");
    folder.create(&Settings::default());
    let never = Options { recheck_every: Duration::from_secs(3600), ..lazy() };
    let journal = open(&folder.journal(), &never).unwrap();
    let mut child = servant_of(&folder.journal(), "lazy");
    check(&mut child, "open", "ok");
    let mut reader = journal.reader(Start::End).unwrap();
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
        // What was appended between the two looks may have made it ready again.
        let _ = rustix::io::read(&fd, &mut [0; 8]);
    }
}

/// Whether a thread sleeps, by its folder in `/proc`.
fn is_asleep(folder: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{folder}/stat")).unwrap();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}

/// The process that writes segments does not run any more, and is not dead either.
#[test]
fn while_the_writing_process_is_stopped_appends_end_in_a_clear_error() {
    let folder = Folder::new("stopped");
    folder.create(&tiny());
    let mut stopped = servant_of(&folder.journal(), "default");
    check(&mut stopped, "open", "ok");
    check(&mut stopped, "durable x", "ok");
    let options = Options { wait_max: FEW, ..Options::default() };
    let journal = open(&folder.journal(), &options).unwrap();
    stopped.stop(true);
    let mut accepted = 1;
    // That it ends is all that is asked: it waits for 300 ms by its options.
    let error = loop {
        match journal.append(&[7; 100], Level::Process) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 1000, "the buffer takes all");
    };
    assert!(matches!(error, Error::Stalled { .. }), "{error}");
    assert!(matches!(journal.append(&[7; 3000], Level::Process), Err(Error::Elsewhere { .. })));
    assert!(matches!(journal.flush(Level::Disk), Err(Error::Stalled { .. })));
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

/// Wherever a process is stopped, also with the append lock taken, others do not wait for ever.
#[test]
fn a_process_stopped_anywhere_hangs_nobody() {
    let folder = Folder::new("stopped-anywhere");
    folder.create(&sizes(64 << 10, 1 << 20));
    let mut random = Random::new(9);
    let mut child = servant_of(&folder.journal(), "default");
    check(&mut child, "open", "ok");
    check(&mut child, "endless", "ok");
    let options = Options { wait_max: FEW, ..Options::default() };
    let journal = std::sync::Arc::new(open(&folder.journal(), &options).unwrap());
    for _ in 0..30 {
        std::thread::sleep(random.micros(3000));
        child.stop(true);
        let same = std::sync::Arc::clone(&journal);
        match ends("an append", 60, move || same.append(b"x", Level::Process)) {
            Ok(_) | Err(Error::Stalled { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        child.stop(false);
    }
    let before = wait_for_append(&journal);
    child.kill();
    assert!(wait_for_append(&journal).positions.start > before.positions.start);
}

/// A process that only reads, without a thread of its own, may be the first that opens a journal.
#[test]
fn a_reader_without_a_thread_that_opened_it_first_stalls_no_writer() {
    let folder = Folder::new("no-thread");
    folder.create(&tiny());
    let mut idle = servant_of(&folder.journal(), "foreground");
    check(&mut idle, "open", "ok");
    let options = Options { wait_max: LONG, ..Options::default() };
    let journal = open(&folder.journal(), &options).unwrap();
    for i in 0..200 {
        let ack = journal.append(&[7; 100], Level::Process);
        assert!(ack.is_ok(), "{i}: {}", ack.unwrap_err());
    }
}

/// The same when it has written something itself before.
#[test]
fn a_writer_without_a_thread_that_is_idle_stalls_no_other() {
    let folder = Folder::new("no-thread-idle");
    folder.create(&tiny());
    let mut idle = servant_of(&folder.journal(), "foreground");
    check(&mut idle, "open", "ok");
    for order in ["append x", "durable x", "large 3000"] {
        check(&mut idle, order, "ok");
        let options = Options { wait_max: LONG, ..Options::default() };
        let journal = open(&folder.journal(), &options).unwrap();
        for i in 0..200 {
            let ack = journal.append(&[7; 100], Level::Process);
            assert!(ack.is_ok(), "after {order}, {i}: {}", ack.unwrap_err());
        }
        let ack = journal.append(&[7; 3000], Level::Disk);
        assert!(ack.is_ok(), "after {order}: {}", ack.unwrap_err());
    }
}

/// A batch past the buffer finds the journal full in one process; later there is room.
#[test]
fn after_a_full_journal_has_room_again_every_process_can_append() {
    let folder = Folder::new("full");
    let limits = Limits { bytes_max: Some(48 << 10), age_max: None, at_limit: AtLimit::Refuse };
    folder.create(&Settings { limits, codec: Codec::None, ..tiny() });
    let journal = folder.open();
    journal.add_subscriber("s", Start::Begin, true).unwrap();
    let mut child = servant_of(&folder.journal(), "default");
    check(&mut child, "open", "ok");
    // This process has the role, and nothing is left in the buffer when it is full.
    let full = (0..100).find_map(|_| journal.append(&[7; 3000], Level::Disk).err()).unwrap();
    assert!(matches!(full, Error::Full(_)), "{full}");
    let mut subscriber = journal.subscribe("s").unwrap();
    while subscriber.next().unwrap().is_some() {}
    let end = subscriber.position();
    // By another handle, which has no part in writing.
    drop(subscriber);
    let other = folder.open();
    let mut subscriber = other.subscribe("s").unwrap();
    while subscriber.next().unwrap().is_some() {}
    subscriber.commit(end, Level::Process).unwrap();
    wait_for("another process can append", 10, || {
        child.tell("append x");
        child.line() == "ok"
    });
}

/// A subscriber that is looked at while it commits is never taken for damaged.
#[test]
fn a_checkpoint_that_is_being_moved_is_sound_to_all_who_look() {
    let folder = Folder::new("commits");
    folder.create(&tiny());
    let journal = folder.open();
    journal.add_subscriber("s", Start::Begin, true).unwrap();
    let mut child = servant_of(&folder.journal(), "default");
    check(&mut child, "open", "ok");
    check(&mut child, "commits s", "ok");
    for i in 0..20_000 {
        let checkpoint = journal.checkpoint("s").unwrap();
        assert!(!checkpoint.damaged, "look {i}: {checkpoint:?}");
        if i % 100 == 0 {
            let busy = journal.subscribe("s");
            assert!(matches!(busy, Err(Error::SubscriberBusy { .. })), "look {i}: {busy:?}");
        }
    }
}

/// A subscriber that somebody removes while another opens it: whoever has it has the one that exists.
#[test]
fn a_subscriber_is_not_given_out_after_it_was_removed() {
    let folder = Folder::new("removed");
    folder.create(&tiny());
    let journal = folder.open();
    let _ = journal.append(b"x", Level::Process).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // Both fail while it is held.
                let _ = journal.remove_checkpoint("s");
                let _ = journal.add_subscriber("s", Start::Begin, true);
            }
        });
        let mut had = 0;
        // The other one has it for the most part, so that many looks are in vain.
        for _ in 0..100_000 {
            if had == 1000 {
                break;
            }
            let Ok(mut subscriber) = journal.subscribe("s") else { continue };
            had += 1;
            while subscriber.next().unwrap().is_some() {}
            subscriber.commit(1, Level::Process).unwrap();
            // As long as it is held, nobody can remove it.
            let position = journal.checkpoint("s").map(|checkpoint| checkpoint.position);
            stop.store(!matches!(position, Ok(1)), std::sync::atomic::Ordering::Relaxed);
            assert!(matches!(position, Ok(1)), "{position:?} after {had}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// A reader that is as fast as the writer meets the buffer just when it is written to a segment.
#[test]
fn a_reader_at_the_writers_heels_sees_no_gap() {
    let folder = Folder::new("heels");
    folder.create(&tiny());
    let options = Options { flush_every: Duration::ZERO, ..Options::default() };
    let journal = open(&folder.journal(), &options).unwrap();
    const RECORDS: u64 = 200_000;
    std::thread::scope(|scope| {
        // More than there are processors, so that they are interrupted anywhere.
        for _ in 0..8 {
            scope.spawn(|| {
                let mut reader = journal.reader(Start::Begin).unwrap();
                while reader.position() < RECORDS {
                    match reader.next().unwrap() {
                        Some(Item::Gap(gap)) => panic!("nothing is missing, but: {gap:?}"),
                        Some(Item::Batch(_)) | None => {}
                    }
                }
            });
        }
        for i in 0..RECORDS {
            let _ = journal.append(&i.to_le_bytes(), Level::Process).unwrap();
        }
    });
}
