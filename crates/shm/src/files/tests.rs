//! Discovery in directories with valid and invalid entries.

use std::fs::{self, create_dir_all};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A directory that is removed on drop.
struct TestRoot(PathBuf);

impl TestRoot {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("topdeck-files-{}-{number}", std::process::id()));
        create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.0.join(path);
        create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.join(path);
        create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// Paths below the root, separated by a space.
    fn mmvs(&self, tmp: Option<&str>) -> String {
        let found = find_mmv_files(&self.0, tmp.map(OsStr::new)).unwrap();
        let paths =
            found.iter().map(|found| found.path.strip_prefix(&self.0).unwrap().to_str().unwrap());
        paths.collect::<Vec<_>>().join(" ")
    }
}

impl Drop for TestRoot {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn content(found: &ForeignFile) -> Result<String, Error> {
    let mut bytes = b"what was there before".to_vec();
    found.open()?.read(&mut bytes)?;
    Ok(String::from_utf8(bytes).unwrap())
}

#[test]
fn jvms_are_found_by_user_and_number() {
    let root = TestRoot::new();
    root.file("tmp/hsperfdata_web/12", "twelve");
    root.file("tmp/hsperfdata_web/7", "seven");
    root.file("tmp/hsperfdata_db/1", "one");
    for other in ["hsperfdata_web/x", "hsperfdata_web/+3", "hsperfdata_web/99999999999", "other/5"]
    {
        root.file(&format!("tmp/{other}"), "no JVM");
    }
    root.file("tmp/hsperfdata_file", "no directory");
    let jvms = find_jvm_files(&root.0).unwrap();
    let found: Vec<_> =
        jvms.iter().map(|jvm| (&*jvm.user, jvm.pid, content(&jvm.file).unwrap())).collect();
    let expected = [("db", 1, "one"), ("web", 7, "seven"), ("web", 12, "twelve")];
    assert_eq!(found, expected.map(|(user, pid, text)| (user, pid, text.to_owned())));
}

#[test]
fn nothing_leads_out_of_a_root() {
    let (root, outside) = (TestRoot::new(), TestRoot::new());
    outside.file("hsperfdata_x/1", "outside");
    outside.file("mmv/x", "outside");
    let out = outside.0.to_str().unwrap();
    root.link("tmp", out);
    root.link("var/tmp", out);
    root.link("var/lib/pcp/tmp/mmv", &format!("{out}/mmv"));
    assert!(find_jvm_files(&root.0).unwrap().is_empty());
    assert_eq!(root.mmvs(Some("../../../../../../../../tmp")), "");
    assert_eq!(root.mmvs(Some(out)), "");
    // A symbolic link inside the root resolves inside it.
    let root = TestRoot::new();
    root.file("private/hsperfdata_x/1", "inside");
    root.link("tmp", "/private");
    assert_eq!(find_jvm_files(&root.0).unwrap().len(), 1);
    // The directory of a user must not be a symbolic link.
    root.link("private/hsperfdata_y", "hsperfdata_x");
    assert_eq!(find_jvm_files(&root.0).unwrap().len(), 1);
}

/// On systems without `openat2` symbolic links are ignored.
#[test]
fn links_are_not_followed_without_openat2() {
    let root = TestRoot::new();
    root.file("var/tmp/mmv/x", "");
    root.link("link", "var/tmp");
    let dir = open_root(&root.0).unwrap();
    let opens = |path: &str| {
        open_without_links(&dir, Path::new(path), OFlags::DIRECTORY | OFlags::RDONLY).is_some()
    };
    assert!(opens("var/tmp/mmv") && opens("var"));
    assert!(!opens("link") && !opens("link/mmv") && !opens("../var") && !opens("var/tmp/mmv/x"));
}

#[test]
fn pcp_conf_names_the_directory() {
    let root = TestRoot::new();
    root.file("var/lib/pcp/tmp/mmv/a", "");
    root.file("var/tmp/mmv/b", "");
    root.file("var/tmp/mmv/.hidden", "");
    assert_eq!(root.mmvs(None), "var/lib/pcp/tmp/mmv/a var/tmp/mmv/b");
    root.file("elsewhere/mmv/c", "");
    root.file("etc/pcp.conf", "# PCP_TMP_DIR=/no\nPCP_VAR_DIR=/var\n PCP_TMP_DIR=\"/elsewhere\"\n");
    assert_eq!(root.mmvs(None), "elsewhere/mmv/c var/lib/pcp/tmp/mmv/a var/tmp/mmv/b");
    root.file("own/mmv/d", "");
    assert!(root.mmvs(Some("/own")).starts_with("own/mmv/d elsewhere/mmv/c "));
    // One directory by two names is searched once.
    root.link("same", "var/tmp");
    assert!(root.mmvs(Some("/same")).ends_with(" var/lib/pcp/tmp/mmv/a"));
    assert!(!root.mmvs(Some("own")).contains("own"), "nobody knows where a relative path begins");
}

#[test]
fn only_regular_files_are_read() {
    let root = TestRoot::new();
    root.file("var/tmp/mmv/real", "real");
    root.link("var/tmp/mmv/link", "real");
    create_dir_all(root.0.join("var/tmp/mmv/directory")).unwrap();
    let pipe = root.0.join("var/tmp/mmv/pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for found in find_mmv_files(&root.0, None).unwrap() {
        let real = found.path.ends_with("real");
        match content(&found) {
            Ok(text) => assert!(real && text == "real", "{found:?}"),
            Err(error) => assert!(!real && matches!(error, Error::NotAFile { .. }), "{error}"),
        }
    }
}

#[test]
fn large_or_missing_files_are_reported() {
    let root = TestRoot::new();
    root.file("var/tmp/mmv/file", "0123456789");
    let found = find_mmv_files(&root.0, None).unwrap().remove(0);
    let opened = found.open().unwrap();
    let mut bytes = Vec::new();
    opened.read_start(&mut bytes, 4).unwrap();
    assert_eq!(bytes, b"0123");
    File::options().write(true).open(&found.path).unwrap().set_len(BYTES_MAX + 1).unwrap();
    let error = opened.read(&mut bytes).unwrap_err();
    assert!(error.to_string().ends_with("67108865 bytes, limit 67108864"), "{error}");
    fs::remove_file(&found.path).unwrap();
    assert!(matches!(found.open(), Err(Error::Io { .. })));
    assert!(find_jvm_files(&root.0.join("no such root")).is_err());
}

#[test]
fn process_has_a_namespace_pid() {
    let status = "Name:\tjava\nPid:\t4711\nNSpid:\t4711\t90\t7\nThreads:\t9\n";
    assert_eq!(namespace_pid(status), Some(7));
    assert_eq!(namespace_pid("NSpid:\t4711\n"), Some(4711));
    assert_eq!(namespace_pid("NSpid:\n"), None);
    assert_eq!(namespace_pid("Name:\tjava\n"), None);
}
