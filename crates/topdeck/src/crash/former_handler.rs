//! The handler of crashes before topdeck was installed: its command line, as the kernel makes it.
//!
//! Linux 6.16, `format_corename` of `fs/coredump.c`: words are split first and `%` is expanded
//! then, so that a name with spaces stays one argument, and an unknown specifier is empty. The
//! kernel passes the values to topdeck, each behind its letter: nothing is looked up.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;

use super::trusted_file::read_trusted;

/// What topdeck itself asks the kernel for: PID, thread, user, group, signal, time, and whether the
/// user may read the process (`dumpable`).
const OWN: &[u8] = b"PIugstd";
/// Names, which the process chooses: host name, thread, file, path of the executable.
const NAMES: &[u8] = b"hefE";
/// The name that topdeck itself asks for.
const OWN_NAME: u8 = b'e';

/// What the kernel says of a crash, by the letter of the specifier (core(5)).
pub(super) struct KernelValues(BTreeMap<u8, OsString>);

impl KernelValues {
    /// From arguments such as `P1234`. The first of a letter counts: kernels before 5.3 split names
    /// with spaces into several arguments, and names are the last ones.
    pub(super) fn parse(arguments: &[OsString]) -> KernelValues {
        let mut values = BTreeMap::new();
        for argument in arguments {
            if let Some((&letter, value)) = argument.as_bytes().split_first() {
                values.entry(letter).or_insert_with(|| OsStr::from_bytes(value).to_owned());
            }
        }
        KernelValues(values)
    }

    pub(super) fn text(&self, letter: u8) -> String {
        self.0.get(&letter).map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub(super) fn number<T: FromStr>(&self, letter: u8) -> Option<T> {
        self.text(letter).parse().ok()
    }

    /// A word of a pattern: `%P` and the like are replaced.
    fn expand(&self, word: &[u8]) -> OsString {
        let (mut text, mut bytes) = (Vec::new(), word.iter());
        while let Some(&byte) = bytes.next() {
            match (byte, bytes.as_slice().first()) {
                (b'%', Some(b'%')) => text.push(b'%'),
                (b'%', letter) => {
                    let value = letter.and_then(|letter| self.0.get(letter));
                    text.extend_from_slice(value.map_or(b"", |value| value.as_bytes()));
                }
                _ => {
                    text.push(byte);
                    continue;
                }
            }
            bytes.next();
        }
        OsString::from_vec(text)
    }
}

/// Arguments by which topdeck gets from the kernel what it needs itself, and what a former pattern
/// has.
pub(super) fn arguments(former: &str) -> String {
    let of_former = specifiers(former);
    let others = of_former.iter().filter(|&it| !OWN.contains(it) && !NAMES.contains(it));
    let names = NAMES.iter().filter(|&it| *it == OWN_NAME || of_former.contains(it));
    let letters = OWN.iter().chain(others).chain(names).map(|&letter| char::from(letter));
    letters.map(|letter| format!(" {letter}%{letter}")).collect()
}

/// Letters after `%` in the pattern of a program.
fn specifiers(pattern: &str) -> Vec<u8> {
    let (mut letters, mut bytes) = (Vec::new(), pattern.bytes());
    if bytes.next() != Some(b'|') {
        return letters;
    }
    while let Some(byte) = bytes.next() {
        let letter = if byte == b'%' { bytes.next() } else { None };
        letters.extend(letter.filter(|it| it.is_ascii_alphabetic() && !letters.contains(it)));
    }
    letters
}

/// The command line of a former pattern; `None` if it names no program, or not by an absolute path.
fn command_line(pattern: &str, values: &KernelValues) -> Option<(OsString, Vec<OsString>)> {
    // As `isspace` of the kernel.
    let is_space = |byte: &u8| matches!(byte, b'\t'..=b'\r' | b' ' | 0xa0);
    let mut words = pattern.strip_prefix('|')?.as_bytes().split(is_space);
    let program = words.by_ref().find(|word| !word.is_empty())?;
    if !program.starts_with(b"/") || program.contains(&b'%') {
        return None;
    }
    let arguments = words.filter(|word| !word.is_empty()).map(|word| values.expand(word));
    Some((OsStr::from_bytes(program).to_owned(), arguments.collect()))
}

/// Whether the pattern in a file names a program that [`start`] starts.
pub(super) fn is_program(pattern: &str) -> bool {
    command_line(pattern, &KernelValues::parse(&[])).is_some()
}

/// The command of the pattern in a file; `None` if there is none, or if others than root can change
/// the file.
pub(super) fn command(file: &Path, values: &KernelValues) -> Option<Command> {
    let (program, arguments) = command_line(&read_trusted(file).ok()?, values)?;
    let mut command = Command::new(program);
    command.args(arguments);
    Some(command)
}

/// Starts it as the kernel does: without environment, the core on its standard input, and a
/// descriptor of the process (`%F`) as topdeck got it.
pub(super) fn start(mut command: Command) -> Option<Child> {
    command.env_clear().stdin(Stdio::piped()).spawn().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, expected: &[&str]) {
        let values = [
            "P7",
            "I8",
            "u0",
            "g0",
            "s11",
            "t1767600000",
            "p1",
            "d2",
            "F3",
            "C",
            "hweb 1",
            "emy prog",
            "fmy program",
            "E!opt!my program",
            "P666",
        ];
        let values = KernelValues::parse(&values.map(OsString::from));
        let found = command_line(pattern, &values).map(|(program, arguments)| {
            let words = [vec![program], arguments].concat().into_iter();
            words.map(|word| word.into_string().expect("UTF-8")).collect::<Vec<_>>()
        });
        assert_eq!(found.unwrap_or_default(), expected, "{pattern}");
    }

    /// What Linux does with these patterns: `format_corename`.
    #[test]
    fn command_line_of_a_former_handler_is_that_of_the_kernel() {
        check("|/bin/a %P-%p:%s", &["/bin/a", "7-1:11"]);
        // Words are split before names with spaces are put in.
        check("|/bin/a %e %f %E", &["/bin/a", "my prog", "my program", "!opt!my program"]);
        check("|  /bin/a\t -p%p\u{b}%h ", &["/bin/a", "-p1", "web 1"]);
        // An unknown specifier is empty, and so is the argument.
        check("|/bin/a %Z %C 100%% %%P x% %", &["/bin/a", "", "", "100%", "%P", "x", ""]);
        check(
            "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t 9223372036854775808 %h %d %F",
            &[
                "/usr/lib/systemd/systemd-coredump",
                "7",
                "0",
                "0",
                "11",
                "1767600000",
                "9223372036854775808",
                "web 1",
                "2",
                "3",
            ],
        );
        for none in ["core", "core.%p", "", "|", "| ", "|bin/a", "|/bin/%e x"] {
            check(none, &[]);
        }
    }

    #[test]
    fn names_come_last_and_do_not_replace_numbers() {
        assert_eq!(arguments("core"), " P%P I%I u%u g%g s%s t%t d%d e%e");
        assert_eq!(
            arguments("|/a %E-%h %%x %c%c %P"),
            " P%P I%I u%u g%g s%s t%t d%d c%c h%h e%e E%E"
        );
        let values = ["P7", "emy", "P1", "", "s"].map(OsString::from);
        let values = KernelValues::parse(&values);
        assert_eq!((values.number::<u32>(b'P'), values.number::<i32>(b's')), (Some(7), None));
        assert_eq!((values.text(b'e'), values.text(b'h')), ("my".to_owned(), String::new()));
    }

    #[test]
    fn bytes_of_names_are_kept() {
        let values = [OsString::from_vec(b"e\xff\n".to_vec())];
        let found = KernelValues::parse(&values).expand(b"-%e");
        assert_eq!(found.as_bytes(), b"-\xff\n");
    }
}
