//! Tests with files that other users choose. A process of Python maps them; without it, or without
//! the right to follow the kernel's links, they are skipped.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::go_functions::not_read;

const NAMES: [&str; 2] = ["SSL_read", "SSL_write"];
/// Maps files with their code, and waits for the end of standard input. `--root DIRECTORY` makes
/// that the root directory first, as the start of a container does.
const MAPPER: &str = "\
import ctypes, mmap, os, sys
paths = sys.argv[1:]
if paths[0] == '--root':
    root, paths = paths[1], paths[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    def check(result):
        if result != 0: sys.exit(os.strerror(ctypes.get_errno()))
    check(libc.unshare(0x20000))
    check(libc.mount(b'none', b'/', None, 0x44000, None))
    check(libc.mount(root.encode(), root.encode(), None, 0x1000, None))
    os.chdir(root)
    number = {'x86_64': 155, 'aarch64': 41}[os.uname().machine]
    check(libc.syscall(number, b'.', b'.'))
    check(libc.umount2(b'.', 2))
    os.chdir('/')
maps = []
for path in paths:
    with open(path, 'rb') as file:
        maps.append(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE,
                              prot=mmap.PROT_READ | mmap.PROT_EXEC))
print('mapped', flush=True)
sys.stdin.read()
";

/// A directory that is removed at the end.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new(name: &str) -> TestDirectory {
        let path = std::env::temp_dir().join(format!("topdeck-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        TestDirectory(path)
    }

    /// A library whose `SSL_read` has this offset.
    fn library(&self, name: &str, offset: u64) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, library(offset)).unwrap();
        path
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The bytes of a library with both functions, of two pages.
fn library(offset: u64) -> Vec<u8> {
    let names = b"\0SSL_read\0SSL_write\0";
    let mut symbols = Vec::new();
    for (name, address) in [(1_u32, offset), (10, offset + 16)] {
        symbols.extend(name.to_le_bytes());
        symbols.extend([0x12, 0, 5, 0]);
        symbols.extend([address, 8].map(u64::to_le_bytes).concat());
    }
    let mut file = vec![0; 0x2000];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01");
    for (at, number) in [(32, 64_u64), (40, 128), (80, 0), (96, 0x2000)] {
        put(at, &number.to_le_bytes());
    }
    for (at, number) in [(54, 56_u16), (56, 1), (58, 64), (60, 2), (64, 1), (68, 5)] {
        put(at, &number.to_le_bytes());
    }
    for (section, kind, start, bytes) in
        [(128, 3_u8, 0x200_u64, &names[..]), (192, 11, 0x300, &symbols)]
    {
        put(section + 4, &[kind]);
        put(section + 24, &[start, bytes.len() as u64].map(u64::to_le_bytes).concat());
        put(start as usize, bytes);
    }
    file
}

/// A process that has mapped files. Drop ends it.
struct MappingProcess(Child);

impl MappingProcess {
    /// `None` if the test is skipped.
    fn start(arguments: &[&Path]) -> Option<MappingProcess> {
        let mut command = Command::new("python3");
        command.args(["-c", MAPPER]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => MappingProcess(child),
            Err(error) => {
                println!("skipped: python3: {error}");
                return None;
            }
        };
        let mut line = String::new();
        let mut output = BufReader::new(child.0.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        if line != "mapped\n" {
            let mut cause = String::new();
            child.0.stderr.take().unwrap().read_to_string(&mut cause).unwrap();
            println!("skipped: python3: {}", cause.trim());
            return None;
        }
        Some(child)
    }

    fn find(&self) -> Result<TlsLibraries, TlsProbeError> {
        find_libraries(&[TlsTarget::Process(self.0.id())], &NAMES, Path::new("/proc"))
    }
}

impl Drop for MappingProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Offsets of `SSL_read` in the files of a process; `None` if the test is skipped.
fn offsets(process: &MappingProcess) -> Option<Vec<Option<u64>>> {
    match process.find() {
        Ok(found) => Some(found.files.iter().map(|file| file.functions[0]).collect()),
        Err(TlsProbeError::Process { cause, .. }) => {
            println!("skipped: {cause}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn make_pipe(path: &Path) -> bool {
    Command::new("mkfifo").arg(path).status().is_ok_and(|status| status.success())
}

#[test]
fn a_name_that_became_a_pipe_or_another_file_is_not_opened() {
    let directory = TestDirectory::new("renamed");
    let path = directory.library("libssl-a.so", 0x1000);
    let Some(process) = MappingProcess::start(&[&path]) else { return };
    fs::remove_file(&path).unwrap();
    if !make_pipe(&path) || !make_pipe(&directory.0.join("libssl-a.so (deleted)")) {
        return println!("skipped: mkfifo");
    }
    // An open of the pipe would wait for ever.
    let Some(found) = offsets(&process) else { return };
    assert_eq!(found, [Some(0x1000)], "the file that the process has mapped");
    fs::remove_file(&path).unwrap();
    directory.library("libssl-a.so", 0x1800);
    assert_eq!(offsets(&process), Some(vec![Some(0x1000)]));
    let named = [TlsTarget::File(directory.0.join("libssl-a.so (deleted)"))];
    let error = find_libraries(&named, &NAMES, Path::new("/proc")).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

#[test]
fn a_process_of_a_container_has_the_library_of_the_container() {
    let directory = TestDirectory::new("container");
    let path = directory.library("libssl-b.so", 0x1000);
    let root = directory.0.join("root");
    let inside = root.join(path.strip_prefix("/").unwrap());
    fs::create_dir_all(inside.parent().unwrap()).unwrap();
    fs::write(&inside, library(0x1400)).unwrap();
    let Some(process) = MappingProcess::start(&[Path::new("--root"), &root, &path]) else { return };
    let Some(found) = offsets(&process) else { return };
    assert_eq!(found, [Some(0x1400)], "not that of the host, which has the same path");
}

#[test]
fn files_of_auto_beyond_the_limit_are_left_out_with_the_cause() {
    let directory = TestDirectory::new("many");
    let paths: Vec<PathBuf> =
        (0..5).map(|at| directory.library(&format!("libssl-{at}\x1b.so"), 0x1000)).collect();
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let Some(process) = MappingProcess::start(&paths) else { return };
    if offsets(&process).is_none() {
        return;
    }
    // A directory in the place of /proc, with this process alone.
    let proc = directory.0.join("proc");
    fs::create_dir(&proc).unwrap();
    let link = format!("/proc/{}", process.0.id());
    std::os::unix::fs::symlink(link, proc.join(process.0.id().to_string())).unwrap();
    let mut search = LibrarySearch {
        names: &NAMES,
        proc: &proc,
        files_max: 3,
        auto_budget_bytes: AUTO_BUDGET_BYTES,
        seen: HashMap::new(),
        found: TlsLibraries::default(),
    };
    search.add_all_processes().unwrap();
    assert_eq!((search.found.files.len(), search.found.left_out.count), (3, 2));
    let text = &search.found.left_out.files[0];
    assert!(text.ends_with("\\u{1b}.so: TLS library limit (3) reached"), "{text}");
    // With no budget all are left out, and nothing fails.
    (search.auto_budget_bytes, search.seen) = (10, HashMap::new());
    search.found = TlsLibraries::default();
    search.add_all_processes().unwrap();
    assert!(search.found.files.is_empty() && search.found.left_out.count >= 5);
    let text = search.found.left_out.files.concat();
    assert!(text.contains("its tables have more bytes than are read"), "{text}");
}

#[test]
fn mappings_are_those_with_code_of_files() {
    let maps = "\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus daemon
00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/dbus daemon
7f00-7f01 r-xp 00000000 08:02 135522                     /usr/lib/libssl.so.3
7f01-7f02 r-xp 00000000 08:02 135522                     /usr/lib/libssl.so.3
7ffe-7fff r-xp 00000000 00:00 0                          [vdso]
7fff-8000 rwxp 00000000 00:00 0
damaged
";
    let dbus = (0x40_0000, 0x45_2000, "/usr/bin/dbus daemon");
    assert_eq!(executable_mappings(maps), [dbus, (0x7f00, 0x7f01, "/usr/lib/libssl.so.3")]);
}

#[test]
fn a_file_without_the_functions_is_an_error() {
    let find = |path: &Path| {
        let target = TlsTarget::File(path.to_owned());
        find_libraries(&[target], &NAMES, Path::new("/proc")).unwrap_err().to_string()
    };
    let own = std::env::current_exe().unwrap();
    assert!(find(&own).contains("no functions SSL_read and SSL_write; name the file"));
    assert!(find(Path::new("/nowhere/libssl.so")).contains("No such file"));
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    assert!(find(&text).contains("not a 64-bit"));
    for other in ["/", "/dev/null"] {
        let text = find(Path::new(other));
        assert!(text.contains(&format!("cannot read TLS at {other}: not a regular file")));
    }
}

/// The bytes of a program of Go with `crypto/tls`, stripped: only the table of its runtime.
fn go_program() -> Vec<u8> {
    let mut file = library(0x1000);
    let (names, functions) = (b".gopclntab\0", b"\0crypto/tls.(*Conn).Read\0");
    for (section, start, bytes) in [(128, 0x600_u64, &functions[..]), (192, 0x700, &names[..])] {
        file[section..section + 8].fill(0);
        let range = [start, bytes.len() as u64].map(u64::to_le_bytes).concat();
        file[section + 24..section + 40].copy_from_slice(&range);
        file[start as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    file[62] = 1;
    file
}

#[test]
fn programs_of_go_with_an_unknown_table_are_not_read_and_the_remedy_is_told() {
    let directory = TestDirectory::new("go");
    let path = directory.0.join("server");
    fs::write(&path, go_program()).unwrap();
    // A directory in the place of /proc, with one process.
    let process = directory.0.join("proc/77");
    fs::create_dir_all(&process).unwrap();
    fs::write(process.join("maps"), "").unwrap();
    std::os::unix::fs::symlink(&path, process.join("exe")).unwrap();
    let proc = directory.0.join("proc");
    let found = find_libraries(&[TlsTarget::Auto], &NAMES, &proc).unwrap();
    let cause = not_read("its table of functions is none of Go 1.18 or later");
    assert!(cause.starts_with("encrypted, Go crypto/tls is not read: its table"), "{cause}");
    let expected = format!("{}: {cause}", path.display());
    assert_eq!((found.files.len(), found.left_out.files), (0, vec![expected.clone()]));
    let find = |target| find_libraries(&[target], &NAMES, &proc).unwrap_err().to_string();
    assert_eq!(find(TlsTarget::File(path.clone())), format!("cannot read TLS at {expected}"));
    let text = find(TlsTarget::Process(77));
    assert!(text.ends_with(&format!("proc/77/exe: {cause}")), "{text}");
}

#[test]
fn a_process_that_does_not_exist_is_an_error() {
    let targets = [TlsTarget::Process(u32::MAX)];
    let found = find_libraries(&targets, &["SSL_read"], Path::new("/proc")).unwrap_err();
    let text = found.to_string();
    assert!(text.starts_with("cannot read the mapped files of process 4294967295"), "{text}");
}
