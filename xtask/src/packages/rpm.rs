//! Packages of Fedora, Rocky, openSUSE and others: `topdeck-VERSION-RELEASE.MACHINE.rpm`.
//!
//! Format: RPM V4, rpm.org, "RPM V4 Package format" and "RPM Tags": a lead, a header of digests, a
//! header of metadata, and a compressed cpio archive. Digests are SHA-256 only, which rpm checks
//! since 4.14 (RHEL 8); payloads are compressed by gzip, which every rpm reads. Packages are not
//! signed by rpm's own signatures, which need OpenPGP: `SHA256SUMS` is signed.
//!
//! Written here because the crate `rpm` has more than 50 dependencies, and the format is small.

mod cpio;
mod header;

use anyhow::{Result, ensure};

use self::cpio::cpio;
use self::header::{RpmHeader, RpmValue};
use super::PackageDir;
use super::checksums::sha256_hex;
use super::file_tree::{FileTree, PackageFile};
use super::installed_tree::{DESCRIPTION, HOMEPAGE, InstallDirs, SUMMARY, installed_tree};
use super::package_source::{PackageSource, repo_file, repo_text};
use super::tar_writer::gzip;

const DIRS: InstallDirs = InstallDirs {
    completions: [
        "usr/share/bash-completion/completions/topdeck",
        "usr/share/zsh/site-functions/_topdeck",
        "usr/share/fish/vendor_completions.d/topdeck.fish",
    ],
};

const LICENSE: &str = "usr/share/licenses/topdeck/LICENSE";
/// Directories of the data, which belong to the user.
const DATA_DIRS: [&str; 2] = ["var/lib/topdeck", "var/lib/topdeck-agent"];
const USER: &str = "topdeck";
/// In a `FileTree`, any owner that is not root: rpm finds the number by the name.
const USER_NUMBER: u32 = 1;
/// Other directories that belong to the package: those of shells too, which may not be installed.
const OWN_DIRS: [&str; 11] = [
    "etc/topdeck",
    "usr/share/bash-completion",
    "usr/share/bash-completion/completions",
    "usr/share/doc/topdeck",
    "usr/share/fish",
    "usr/share/fish/vendor_completions.d",
    "usr/share/licenses/topdeck",
    "usr/share/topdeck",
    "usr/share/topdeck/drop-ins",
    "usr/share/zsh",
    "usr/share/zsh/site-functions",
];

/// Script of the tree, its tag, the tag of its interpreter, and its flag as a requirement.
const SCRIPTS: [(&str, u32, u32, u32); 4] = [
    ("pre", 1023, 1085, 1 << 9),
    ("post", 1024, 1086, 1 << 10),
    ("preun", 1025, 1087, 1 << 11),
    ("postun", 1026, 1088, 1 << 12),
];
const SHELL: &str = "/bin/sh";

const LESS: u32 = 1 << 1;
const EQUAL: u32 = 1 << 3;
const INTERPRETER: u32 = 1 << 8;
const FEATURE_OF_RPM: u32 = 1 << 24;

const FILE_CONFIG: u32 = 1;
const FILE_DOC: u32 = 1 << 1;
const FILE_NO_REPLACE: u32 = 1 << 4;
const FILE_LICENSE: u32 = 1 << 7;

const SHA_256: u32 = 8;

pub(super) fn write(source: &PackageSource, files: &mut PackageDir) -> Result<()> {
    let mut tree = installed_tree(source, &DIRS)?;
    tree.add(LICENSE, repo_file("LICENSE")?);
    for dir in DATA_DIRS {
        tree.add_dir(dir, 0o750, USER_NUMBER);
    }
    let owned = owned_files(&tree);
    let payload = cpio(&owned, source.time_s)?;
    let compressed = gzip(&payload);

    let mut header = RpmHeader::default();
    add_description(&mut header, source);
    add_scripts(&mut header)?;
    add_files(&mut header, &owned, source.time_s)?;
    header.add(1124, RpmValue::Text("cpio".to_owned()));
    header.add(1125, RpmValue::Text("gzip".to_owned()));
    header.add(1126, RpmValue::Text("9".to_owned()));
    header.add(5092, RpmValue::Texts(vec![sha256_hex(&compressed)]));
    header.add(5093, RpmValue::Int32(vec![SHA_256]));
    let header = header.to_bytes(header::IMMUTABLE);

    let mut signatures = RpmHeader::default();
    signatures.add(273, RpmValue::Text(sha256_hex(&header)));
    let size = u32::try_from(header.len() + compressed.len())?;
    signatures.add(1000, RpmValue::Int32(vec![size]));
    signatures.add(1007, RpmValue::Int32(vec![u32::try_from(payload.len())?]));

    let name = format!("topdeck-{}-{}", source.version, source.release);
    let mut bytes = lead(&name, source.arch.machine)?;
    bytes.extend_from_slice(&signatures.to_bytes(header::SIGNATURES));
    // The metadata begin at a multiple of 8.
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(&compressed);
    files.write(&format!("{name}.{}.rpm", source.arch.machine), &bytes)
}

/// Files, and directories that belong to the package, by path from the root.
fn owned_files(tree: &FileTree) -> Vec<(&str, &PackageFile)> {
    let is_own = |path: &str| OWN_DIRS.contains(&path) || DATA_DIRS.contains(&path);
    tree.iter().filter(|(path, file)| !file.is_dir() || is_own(path)).collect()
}

/// The first 96 bytes, which programs such as file(1) read.
fn lead(name: &str, machine: &str) -> Result<Vec<u8>> {
    const NAME_BYTES: usize = 66;
    let arch: u16 = match machine {
        "aarch64" => 19,
        _ => 1,
    };
    ensure!(name.len() < NAME_BYTES, "the name {name} is too long for rpm");
    let mut bytes = b"\xed\xab\xee\xdb\x03\x00\x00\x00".to_vec();
    bytes.extend_from_slice(&arch.to_be_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(10 + NAME_BYTES, 0);
    // Linux; signatures in a header.
    bytes.extend_from_slice(b"\x00\x01\x00\x05");
    bytes.resize(96, 0);
    Ok(bytes)
}

fn add_description(header: &mut RpmHeader, source: &PackageSource) {
    let version = format!("{}-{}", source.version, source.release);
    let mut text = |tag, text: &str| header.add(tag, RpmValue::Text(text.to_owned()));
    text(1000, "topdeck");
    text(1001, source.version);
    text(1002, &source.release.to_string());
    // Builds on different machines have the same bytes.
    text(1007, "localhost");
    text(1014, "Apache-2.0");
    text(1015, &source.maintainer);
    text(1020, HOMEPAGE);
    text(1021, "linux");
    text(1022, source.arch.machine);
    // Without it, rpm takes the package for one of sources.
    text(1044, &format!("topdeck-{version}.src.rpm"));
    text(1064, "4.14.0");
    header.add(100, RpmValue::Texts(vec!["C".to_owned()]));
    header.add(1004, RpmValue::Localized(SUMMARY.to_owned()));
    header.add(1005, RpmValue::Localized(DESCRIPTION.join("\n\n")));
    header.add(1006, RpmValue::Int32(vec![source.time_s as u32]));
    header.add(1016, RpmValue::Localized("Unspecified".to_owned()));
    header.add(1047, RpmValue::Texts(vec!["topdeck".to_owned()]));
    header.add(1112, RpmValue::Int32(vec![EQUAL]));
    header.add(1113, RpmValue::Texts(vec![version]));
}

fn add_scripts(header: &mut RpmHeader) -> Result<()> {
    let feature = |name: &str, version: &str| {
        (format!("rpmlib({name})"), FEATURE_OF_RPM | LESS | EQUAL, version.to_owned())
    };
    let mut required = vec![
        ("/usr/sbin/useradd".to_owned(), SCRIPTS[0].3, String::new()),
        feature("CompressedFileNames", "3.0.4-1"),
        feature("FileDigests", "4.6.0-1"),
        feature("PayloadFilesHavePrefix", "4.0-1"),
    ];
    for (name, tag, interpreter, flag) in SCRIPTS {
        header.add(tag, RpmValue::Text(repo_text(&format!("packaging/rpm/{name}"))?));
        header.add(interpreter, RpmValue::Text(SHELL.to_owned()));
        required.push((SHELL.to_owned(), INTERPRETER | flag, String::new()));
    }
    header.add(1048, RpmValue::Int32(required.iter().map(|(_, flags, _)| *flags).collect()));
    header.add(1049, RpmValue::Texts(required.iter().map(|(name, ..)| name.clone()).collect()));
    header.add(1050, RpmValue::Texts(required.into_iter().map(|(.., version)| version).collect()));
    Ok(())
}

fn add_files(header: &mut RpmHeader, owned: &[(&str, &PackageFile)], time_s: u64) -> Result<()> {
    let mut dirs: Vec<String> = Vec::new();
    let mut indexes = Vec::new();
    let mut names = Vec::new();
    for (path, _) in owned {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = format!("/{dir}/");
        let index = dirs.iter().position(|known| *known == dir).unwrap_or(dirs.len());
        if index == dirs.len() {
            dirs.push(dir);
        }
        indexes.push(u32::try_from(index)?);
        names.push(name.to_owned());
    }
    let count = owned.len();
    let ints = |of: &dyn Fn(&str, &PackageFile) -> u32| {
        RpmValue::Int32(owned.iter().map(|(path, file)| of(path, file)).collect())
    };
    let texts = |of: &dyn Fn(&PackageFile) -> String| {
        RpmValue::Texts(owned.iter().map(|(_, file)| of(file)).collect())
    };
    let size = |file: &PackageFile| file.bytes().len() as u32;
    let user = |file: &PackageFile| (if file.owner == 0 { "root" } else { USER }).to_owned();
    let digest = |file: &PackageFile| match file.is_dir() {
        true => String::new(),
        false => sha256_hex(file.bytes()),
    };
    let modes = owned.iter().map(|(_, file)| cpio::mode(file) as u16).collect();
    header.add(1009, RpmValue::Int32(vec![owned.iter().map(|(_, file)| size(file)).sum()]));
    header.add(1028, ints(&|_, file| size(file)));
    header.add(1030, RpmValue::Int16(modes));
    header.add(1033, RpmValue::Int16(vec![0; count]));
    header.add(1034, ints(&|_, _| time_s as u32));
    header.add(1035, texts(&digest));
    header.add(1036, texts(&|_| String::new()));
    header.add(1037, ints(&file_flags));
    header.add(1039, texts(&user));
    header.add(1040, texts(&user));
    header.add(1045, ints(&|_, _| u32::MAX));
    header.add(1095, ints(&|_, _| 1));
    header.add(1096, RpmValue::Int32((1..=u32::try_from(count)?).collect()));
    header.add(1097, texts(&|_| String::new()));
    header.add(1116, RpmValue::Int32(indexes));
    header.add(1117, RpmValue::Texts(names));
    header.add(1118, RpmValue::Texts(dirs));
    header.add(5011, RpmValue::Int32(vec![SHA_256]));
    Ok(())
}

fn file_flags(path: &str, file: &PackageFile) -> u32 {
    let is_doc = path.starts_with("usr/share/doc/") || path.starts_with("usr/share/man/");
    match () {
        () if file.is_settings => FILE_CONFIG | FILE_NO_REPLACE,
        () if path == LICENSE => FILE_LICENSE,
        () if is_doc && !file.is_dir() => FILE_DOC,
        () => 0,
    }
}
