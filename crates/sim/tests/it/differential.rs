//! Random operations have the same results on both disks.

use std::io;
use std::path::Path;

use disk::{Disk, File, OpenMode, OsDisk};
use proptest::collection::vec;
use proptest::prelude::*;
use sim::SimDisk;

use crate::TempDir;

const NAMES: [&str; 5] = ["a", "b", "d/a", "d/c", "e/a"];
const HANDLES: usize = 4;

#[derive(Clone, Debug)]
enum DiskStep {
    CreateDir(usize),
    Open(usize, usize, OpenMode),
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

fn disk_step() -> impl Strategy<Value = DiskStep> {
    let name = || 0..NAMES.len();
    let handle = || 0..HANDLES;
    let at = || prop_oneof![0..600_u64, 3900..4300_u64, 8000..9000_u64];
    let mode = prop_oneof![
        Just(OpenMode::Read),
        Just(OpenMode::Write),
        Just(OpenMode::Create),
        Just(OpenMode::Create),
        Just(OpenMode::CreateNew)
    ];
    prop_oneof![
        1 => name().prop_map(DiskStep::CreateDir),
        4 => (handle(), name(), mode).prop_map(|(h, n, m)| DiskStep::Open(h, n, m)),
        1 => handle().prop_map(DiskStep::Close),
        1 => name().prop_map(DiskStep::List),
        1 => (name(), name()).prop_map(|(from, to)| DiskStep::Rename(from, to)),
        1 => name().prop_map(DiskStep::Remove),
        2 => (handle(), at(), 0..5000_usize).prop_map(|(h, o, n)| DiskStep::Read(h, o, n)),
        3 => (handle(), at(), vec(1..255_u8, 0..700)).prop_map(|(h, o, b)| DiskStep::Write(h, o, b)),
        1 => (handle(), at()).prop_map(|(h, len)| DiskStep::SetLen(h, len)),
        1 => (handle(), at()).prop_map(|(h, len)| DiskStep::Allocate(h, len)),
        1 => handle().prop_map(DiskStep::Sync),
        1 => handle().prop_map(DiskStep::TryLock),
        1 => handle().prop_map(DiskStep::TryLockShared),
        1 => handle().prop_map(DiskStep::Unlock),
    ]
}

type Handles = [Option<Box<dyn File>>; HANDLES];

/// Result of a step, as text.
fn run_step(disk: &dyn Disk, dir: &Path, handles: &mut Handles, step: &DiskStep) -> String {
    let path = |name: usize| dir.join(NAMES[name]);
    let directory = |name: usize| path(name).parent().unwrap().to_owned();
    if let DiskStep::Open(handle, name, mode) = step {
        // Closed first, so that its lock blocks nothing.
        handles[*handle] = None;
        let opened = disk.open(&path(*name), *mode);
        let shown = describe(opened.as_ref().map(drop));
        handles[*handle] = opened.ok();
        return shown;
    }
    if let DiskStep::Close(handle) = step {
        handles[*handle] = None;
        return String::new();
    }
    let file = |handle: usize| handles[handle].as_deref();
    let on = |handle: usize, act: &dyn Fn(&dyn File) -> String| {
        file(handle).map(act).unwrap_or_default()
    };
    match step {
        DiskStep::Open(..) | DiskStep::Close(_) => unreachable!("done above"),
        DiskStep::CreateDir(name) => describe(disk.create_dir(&directory(*name)).as_ref()),
        DiskStep::List(name) => describe(
            disk.list(&directory(*name))
                .map(|mut names| {
                    names.sort();
                    names
                })
                .as_ref(),
        ),
        DiskStep::Rename(from, to) => describe(disk.rename(&path(*from), &path(*to)).as_ref()),
        DiskStep::Remove(name) => describe(disk.remove(&path(*name)).as_ref()),
        DiskStep::Read(handle, offset, count) => on(*handle, &|file| {
            let mut bytes = vec![0; *count];
            let read = file.read_at(&mut bytes, *offset);
            format!("{} {bytes:?} {}", describe(read.as_ref()), describe(file.len().as_ref()))
        }),
        DiskStep::Write(handle, offset, bytes) => {
            on(*handle, &|file| describe(file.write_at(bytes, *offset).as_ref()))
        }
        DiskStep::SetLen(handle, len) => on(*handle, &|file| describe(file.set_len(*len).as_ref())),
        DiskStep::Allocate(handle, len) => {
            on(*handle, &|file| describe(file.allocate(*len).as_ref()))
        }
        DiskStep::Sync(handle) => on(*handle, &|file| describe(file.sync().as_ref())),
        DiskStep::TryLock(handle) => on(*handle, &|file| describe(file.try_lock().as_ref())),
        DiskStep::TryLockShared(handle) => {
            on(*handle, &|file| describe(file.try_lock_shared().as_ref()))
        }
        DiskStep::Unlock(handle) => on(*handle, &|file| describe(file.unlock().as_ref())),
    }
}

fn describe<T: std::fmt::Debug>(result: Result<T, &io::Error>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn sim_and_os_disk_behave_equally(steps in vec(disk_step(), 1..60)) {
        let temp = TempDir::new();
        let sim = SimDisk::new(1).process();
        let (mut real, mut simulated) = (Handles::default(), Handles::default());
        for step in &steps {
            let expected = run_step(&OsDisk, &temp.0, &mut real, step);
            let seen = run_step(&sim, Path::new("/"), &mut simulated, step);
            prop_assert_eq!(seen, expected, "{:?}", step);
        }
    }
}
