//! Arbitrary operations have the same results on both disks.

use std::io;
use std::path::Path;

use disk::{Disk, File, Mode, OsDisk, SimDisk};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::TempDir;

const NAMES: [&str; 5] = ["a", "b", "d/a", "d/c", "e/a"];
const HANDLES: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    CreateDir(usize),
    Open(usize, usize, Mode),
    Close(usize),
    List(usize),
    Rename(usize, usize),
    Remove(usize),
    Read(usize, u64, usize),
    Write(usize, u64, Vec<u8>),
    SetLen(usize, u64),
    Allocate(usize, u64),
    Sync(usize),
    TryLock(usize),
    TryLockShared(usize),
    Unlock(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let handle = || 0..HANDLES;
    let at = || prop_oneof![0..600_u64, 3900..4300_u64, 8000..9000_u64];
    let mode = prop_oneof![
        Just(Mode::Read),
        Just(Mode::Write),
        Just(Mode::Create),
        Just(Mode::Create),
        Just(Mode::CreateNew)
    ];
    prop_oneof![
        1 => name().prop_map(Step::CreateDir),
        4 => (handle(), name(), mode).prop_map(|(h, n, m)| Step::Open(h, n, m)),
        1 => handle().prop_map(Step::Close),
        1 => name().prop_map(Step::List),
        1 => (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => name().prop_map(Step::Remove),
        2 => (handle(), at(), 0..5000_usize).prop_map(|(h, o, n)| Step::Read(h, o, n)),
        3 => (handle(), at(), vec(1..255_u8, 0..700)).prop_map(|(h, o, b)| Step::Write(h, o, b)),
        1 => (handle(), at()).prop_map(|(h, len)| Step::SetLen(h, len)),
        1 => (handle(), at()).prop_map(|(h, len)| Step::Allocate(h, len)),
        1 => handle().prop_map(Step::Sync),
        1 => handle().prop_map(Step::TryLock),
        1 => handle().prop_map(Step::TryLockShared),
        1 => handle().prop_map(Step::Unlock),
    ]
}

type Handles = [Option<Box<dyn File>>; HANDLES];

/// What a step shows, as text.
fn take(disk: &dyn Disk, dir: &Path, handles: &mut Handles, step: &Step) -> String {
    let path = |name: usize| dir.join(NAMES[name]);
    let folder = |name: usize| path(name).parent().unwrap().to_owned();
    if let Step::Open(handle, name, mode) = step {
        // What was open is closed before, as its lock is in the way of nobody then.
        handles[*handle] = None;
        let opened = disk.open(&path(*name), *mode);
        let shown = show(opened.as_ref().map(drop));
        handles[*handle] = opened.ok();
        return shown;
    }
    if let Step::Close(handle) = step {
        handles[*handle] = None;
        return String::new();
    }
    let file = |handle: usize| handles[handle].as_deref();
    let on = |handle: usize, act: &dyn Fn(&dyn File) -> String| {
        file(handle).map(act).unwrap_or_default()
    };
    match step {
        Step::Open(..) | Step::Close(_) => unreachable!("done above"),
        Step::CreateDir(name) => show(disk.create_dir(&folder(*name)).as_ref()),
        Step::List(name) => show(
            disk.list(&folder(*name))
                .map(|mut names| {
                    names.sort();
                    names
                })
                .as_ref(),
        ),
        Step::Rename(from, to) => show(disk.rename(&path(*from), &path(*to)).as_ref()),
        Step::Remove(name) => show(disk.remove(&path(*name)).as_ref()),
        Step::Read(handle, offset, count) => on(*handle, &|file| {
            let mut bytes = vec![0; *count];
            let read = file.read_at(&mut bytes, *offset);
            format!("{} {bytes:?} {}", show(read.as_ref()), show(file.len().as_ref()))
        }),
        Step::Write(handle, offset, bytes) => {
            on(*handle, &|file| show(file.write_at(bytes, *offset).as_ref()))
        }
        Step::SetLen(handle, len) => on(*handle, &|file| show(file.set_len(*len).as_ref())),
        Step::Allocate(handle, len) => on(*handle, &|file| show(file.allocate(*len).as_ref())),
        Step::Sync(handle) => on(*handle, &|file| show(file.sync().as_ref())),
        Step::TryLock(handle) => on(*handle, &|file| show(file.try_lock().as_ref())),
        Step::TryLockShared(handle) => on(*handle, &|file| show(file.try_lock_shared().as_ref())),
        Step::Unlock(handle) => on(*handle, &|file| show(file.unlock().as_ref())),
    }
}

fn show<T: std::fmt::Debug>(result: Result<T, &io::Error>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn both_disks_do_the_same(steps in vec(step(), 1..60)) {
        let temp = TempDir::new();
        let sim = SimDisk::new(1).process();
        let (mut real, mut simulated) = (Handles::default(), Handles::default());
        for step in &steps {
            let expected = take(&OsDisk, &temp.0, &mut real, step);
            let seen = take(&sim, Path::new("/"), &mut simulated, step);
            prop_assert_eq!(seen, expected, "{:?}", step);
        }
    }
}
