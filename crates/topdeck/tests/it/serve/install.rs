//! The pasted line: a host installs the agent from a server, updates it, and removes it. Each test
//! installs below a directory, as `--root` does, with the shells that this machine has.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rcgen::{CertificateParams, KeyPair};

use super::client::request_at;
use super::data_loss::SmallFilesystem;
use super::server_process::{ServerProcess, TestDir, wait_until};

const TOKEN_VARIABLE: &str = "TOPDECK_ENROLLMENT_TOKEN";
/// Tools of the script, beside the shell and a client of HTTP.
const TOOLS: [&str; 9] = ["cat", "chmod", "head", "id", "mktemp", "rm", "sed", "sha256sum", "tail"];

/// Output of a run.
struct ScriptOutput {
    is_success: bool,
    text: String,
}

impl ScriptOutput {
    #[track_caller]
    fn check(&self, is_success: bool, parts: &[&str]) {
        assert_eq!(self.is_success, is_success, "{}", self.text);
        for part in parts {
            assert!(self.text.contains(part), "{part:?} is not in:\n{}", self.text);
        }
    }
}

/// The enrollment token of a printed line.
fn token_of(line: &str) -> &str {
    line.split("Bearer ").nth(1).unwrap().split('"').next().unwrap()
}

fn run(command: &mut Command) -> ScriptOutput {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    ScriptOutput { is_success: output.status.success(), text }
}

fn topdeck(arguments: &[&str]) -> ScriptOutput {
    run(Command::new(env!("CARGO_BIN_EXE_topdeck")).args(arguments).env_clear())
}

fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.exists())
}

/// Shells of this machine: command words.
fn shells() -> Vec<&'static str> {
    let known = [("dash", "dash"), ("busybox", "busybox sh"), ("bash", "bash --posix")];
    let found = known.into_iter().filter(|(tool, _)| find_tool(tool).is_some());
    let found: Vec<&str> = found.map(|(_, line)| line).collect();
    if found.is_empty() {
        println!("skipped: neither dash, busybox nor bash is installed");
    }
    found
}

fn has_curl() -> bool {
    let has_curl = find_tool("curl").is_some();
    if !has_curl {
        println!("skipped: curl is not installed");
    }
    has_curl
}

/// A server and a directory in which a host installs.
struct InstallFixture {
    server: ServerProcess,
    host: TestDir,
}

impl InstallFixture {
    fn new(server: ServerProcess) -> InstallFixture {
        let host = TestDir::new();
        std::fs::create_dir_all(host.path("root/etc")).unwrap();
        std::fs::create_dir_all(host.path("tools")).unwrap();
        InstallFixture { server, host }
    }

    fn plain() -> InstallFixture {
        let mut server = ServerProcess::new("serve", "");
        server.start();
        InstallFixture::new(server)
    }

    fn data(&self) -> String {
        self.server.dir.path("data").to_str().unwrap().to_owned()
    }

    fn root(&self) -> String {
        self.host.path("root").to_str().unwrap().to_owned()
    }

    /// The line that the server prints, as `line | sh`.
    #[track_caller]
    fn line(&self, more: &[&str]) -> String {
        let data = self.data();
        let printed = topdeck(&[&["token", &data, "enroll"], more].concat());
        printed.check(true, &["curl -fsS", "/install.sh | sh"]);
        let line = printed.text.lines().find(|line| line.ends_with(" | sh")).unwrap();
        line.strip_suffix(" | sh").unwrap().to_owned()
    }

    /// Runs the line with a shell and arguments.
    fn paste(&self, line: &str, shell: &str, arguments: &str) -> ScriptOutput {
        let root = self.root();
        run(Command::new("sh")
            .arg("-c")
            .arg(format!("{line} | {shell} -s -- {arguments} --root {root}")))
    }

    /// Runs the script of the server, changed, with a PATH that has `tools` first.
    fn run_script(&self, change: impl Fn(String) -> String, arguments: &[&str]) -> ScriptOutput {
        let script = change(self.server.get("/install.sh").text());
        std::fs::write(self.host.path("install.sh"), script).unwrap();
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.host.path("tools").display());
        let mut command = Command::new("sh");
        command.arg(self.host.path("install.sh")).args(arguments);
        run(command.env("PATH", path).env(TOKEN_VARIABLE, format!("td_{}", "0".repeat(64))))
    }

    /// A command of the host that prints a text.
    fn fake_tool(&self, name: &str, prints: &str) {
        let path = self.host.path("tools").join(name);
        std::fs::write(&path, format!("#!/bin/sh\necho {prints}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn files(&self) -> BTreeSet<PathBuf> {
        let mut files = BTreeSet::new();
        list_files(&self.host.path("root"), &mut files);
        files
    }
}

fn list_files(dir: &Path, files: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list_files(&path, files);
        }
        files.insert(path);
    }
}

/// A server with TLS whose certificate no CA has signed, for a name or address.
fn self_signed_server(name: &str) -> (ServerProcess, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let pin = net::PublicKeyPin::of_certificate(certificate.der()).unwrap();
    let tls = "[http.tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\n";
    let mut server = ServerProcess::new("serve", tls);
    std::fs::write(server.dir.path("server.pem"), certificate.pem()).unwrap();
    std::fs::write(server.dir.path("server.key"), key.serialize_pem()).unwrap();
    server.spawn();
    wait_until("it listens", || server.log().contains("HTTP and OTLP at https://"));
    (server, pin.to_string())
}

/// The whole life of an agent, from a server whose certificate no CA has signed: dry run,
/// installation, repetition, update, removal. Nothing is left afterwards.
// slow: the agent writes its first batch at the end of an interval of 10 s
#[test]
fn pasted_line_installs_updates_and_removes_the_agent() {
    if !has_curl() {
        return;
    }
    let Some(&shell) = shells().first() else { return };
    let (server, pin) = self_signed_server("elsewhere.example");
    let it = InstallFixture::new(server);
    let before = it.files();
    let line = it.line(&[]);
    assert!(line.contains(&format!(" -k --pinnedpubkey '{pin}' -K - ")), "{line}");
    let options = "--no-listen --name web-1";
    let told = it.paste(&line, shell, &format!("{options} --dry-run"));
    told.check(true, &["would exchange the enrollment token", "would start the agent"]);
    assert_eq!(it.files(), before, "a dry run changes nothing");

    let installed = it.paste(&line, shell, options);
    let page = format!("https://{}/#/host?host=web-1", it.server.address());
    let parts = ["the server received a batch after", "has no systemd", &page];
    installed.check(true, &parts);
    let settings = std::fs::read_to_string(it.host.path("root/etc/topdeck/agent.toml")).unwrap();
    assert!(settings.contains(&format!("pinned_public_keys = [\"{pin}\"]")), "{settings}");
    let secret = std::fs::read_to_string(it.host.path("root/etc/topdeck/agent-token")).unwrap();
    let mode = it.host.path("root/etc/topdeck/agent-token").metadata().unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    topdeck(&["token", &it.data(), "list"]).check(true, &["web-1", "token, enrolled with"]);

    // The enrollment token has no use left, and none is needed.
    let program = it.host.path("root/usr/local/bin/topdeck");
    std::fs::write(it.host.path("older"), "#!/bin/sh\n").unwrap();
    let again = it.paste(&line, shell, options);
    again.check(true, &["keep the token web-1", "keep the agent running: nothing changed"]);
    std::fs::rename(it.host.path("older"), &program).unwrap();
    let updated = it.paste(&line, shell, options);
    let replaced = format!("replace {}", program.display());
    updated.check(true, &[&replaced, "restart the agent", "the server received a batch"]);

    let log = it.server.log();
    let code = token_of(&line);
    assert!(!log.contains(code) && !log.contains(secret.trim()), "a secret is in the log");

    let removed = it.paste(&line, shell, "uninstall");
    removed.check(true, &["stop the agent", "remove the token of this host"]);
    assert_eq!(it.files(), before, "{}", removed.text);
    let listed = topdeck(&["token", &it.data(), "list"]);
    assert!(!listed.text.contains("web-1"), "{}", listed.text);
    // Batches of the host arrived.
    assert!(listed.text.contains("token, 0 uses"), "{}", listed.text);
    it.paste(&line, shell, "uninstall").check(false, &["nothing is installed"]);
}

/// A pin was dropped if a CA of the system proved the server.
#[test]
fn given_pin_holds_beside_the_cas_of_the_system() {
    let (server, pin) = self_signed_server("127.0.0.1");
    let it = InstallFixture::new(server);
    let (before, root) = (it.files(), it.root());
    let address = it.server.address();
    let install = |scheme: &str, pins: &[&str]| {
        let url = format!("{scheme}://{address}");
        let options = ["install", "--server", &url, "--root", &root, "--no-listen"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_topdeck"));
        command.args(options).args(pins).env_clear();
        command.env("SSL_CERT_FILE", it.server.dir.path("server.pem"));
        run(command.env(TOKEN_VARIABLE, format!("td_{}", "0".repeat(64))))
    };
    let unknown = "unknown enrollment token";
    install("https", &[]).check(false, &[unknown]);
    install("https", &["--pin", &pin]).check(false, &[unknown]);
    let other = format!("sha256//{}A=", "A".repeat(42));
    let refused = install("https", &["--pin", &other]);
    refused.check(false, &["cannot reach the server", "pin"]);
    assert!(!refused.text.contains(unknown), "{}", refused.text);
    install("http", &["--pin", &pin]).check(false, &["found a server without TLS"]);
    assert_eq!(it.files(), before);
}

/// What differs between shells is the script.
#[test]
fn every_shell_runs_the_script() {
    if !has_curl() {
        return;
    }
    let it = InstallFixture::plain();
    let (before, line) = (it.files(), it.line(&[]));
    for shell in shells() {
        let told = it.paste(&line, shell, "--dry-run");
        told.check(true, &["would exchange the enrollment token", "would start the agent"]);
        it.paste(&line, shell, "uninstall").check(false, &["nothing is installed"]);
        assert_eq!(it.files(), before, "{shell}");
    }
}

/// Each failure is one sentence with the remedy, and leaves nothing.
#[test]
fn failed_installation_says_why_and_leaves_nothing() {
    if !has_curl() {
        return;
    }
    let it = InstallFixture::plain();
    let (before, root) = (it.files(), it.root());
    let options = ["--root", root.as_str(), "--no-listen"];
    #[track_caller]
    fn check(
        it: &InstallFixture,
        before: &BTreeSet<PathBuf>,
        found: &ScriptOutput,
        parts: &[&str],
    ) {
        found.check(false, parts);
        assert_eq!(&it.files(), before, "{}", found.text);
    }
    let same = |script: String| script;

    // The token is unknown, expired, or missing without a terminal.
    let unknown = it.run_script(same, &options);
    check(&it, &before, &unknown, &["unknown enrollment token; create one", "changes are undone"]);
    let expired = it.line(&["--expires", "1ns"]);
    let expired = it.paste(&expired, "sh", "--no-listen");
    check(&it, &before, &expired, &["has expired; create one"]);

    // Another server answers: the checksum is not that of the script.
    let sum = |script: String| script.replace("sha256sums='", "sha256sums='0");
    let damaged = it.run_script(sum, &options);
    check(&it, &before, &damaged, &["has the SHA-256", "run the command again"]);

    let server = format!("server='http://{}'", it.server.address());
    let away = |script: String| script.replace(&server, "server='http://127.0.0.1:1'");
    let away = it.run_script(away, &options);
    check(
        &it,
        &before,
        &away,
        &["cannot fetch http://127.0.0.1:1/", "check that this host reaches"],
    );

    // A package is not replaced.
    std::fs::create_dir_all(it.host.path("root/usr/bin")).unwrap();
    std::fs::write(it.host.path("root/usr/bin/topdeck"), "").unwrap();
    let with_package = it.files();
    let packaged = it.run_script(same, &options);
    check(&it, &with_package, &packaged, &["is of a package", "or remove the package"]);
    std::fs::remove_dir_all(it.host.path("root/usr")).unwrap();

    it.fake_tool("uname", "armv7l");
    let other =
        it.run_script(|script| script.replace("[ \"$(uname -s)\" = Linux ]", "true"), &options);
    check(&it, &before, &other, &["has no program for it", "`binaries` in [install]"]);
    it.fake_tool("uname", "Plan9");
    check(&it, &before, &it.run_script(same, &options), &["topdeck runs on Linux only"]);
    std::fs::remove_file(it.host.path("tools/uname")).unwrap();
    it.fake_tool("id", "1000");
    let user = it.run_script(same, &[]);
    check(&it, &before, &user, &["cannot install without root", "sudo"]);
}

#[test]
fn wget_fetches_where_curl_is_missing() {
    let Some(wget) = find_tool("wget") else {
        println!("skipped: wget is not installed");
        return;
    };
    let it = InstallFixture::plain();
    let root = it.root();
    let tools = it.host.path("tools");
    for tool in TOOLS.iter().chain(&["uname", "sh", "echo"]) {
        let path = find_tool(tool).unwrap_or_else(|| panic!("{tool} is missing"));
        std::os::unix::fs::symlink(path, tools.join(tool)).unwrap();
    }
    let run_script = || {
        let script = it.server.get("/install.sh").text();
        std::fs::write(it.host.path("install.sh"), script).unwrap();
        let mut command = Command::new("sh");
        command.arg(it.host.path("install.sh")).args(["--dry-run", "--root", &root]);
        run(command.env("PATH", &tools))
    };
    run_script().check(false, &["neither curl nor wget is installed; install one of them"]);
    std::os::unix::fs::symlink(wget, tools.join("wget")).unwrap();
    run_script().check(true, &["would start the agent"]);
}

#[test]
fn full_disk_leaves_nothing() {
    let it = InstallFixture::plain();
    let Some(disk) = SmallFilesystem::mount(&it.host.path("root"), 8) else { return };
    disk.fill();
    let (before, root) = (it.files(), it.root());
    let options = ["--root", root.as_str(), "--no-listen"];
    let full = it.run_script(|script| script, &options);
    full.check(false, &["No space left on device", "free space on the disk of", "are undone"]);
    assert_eq!(it.files(), before);
    // The download finds no space, either.
    let temporary = format!("TMPDIR={root}; export TMPDIR; main \"$@\"");
    let full = it
        .run_script(|script| script.replace("\nmain \"$@\"", &format!("\n{temporary}")), &options);
    full.check(false, &["cannot write to", "free space there, or set TMPDIR"]);
    assert_eq!(it.files(), before);
}

/// `uninstall` knows what a killed installation had begun.
#[test]
fn killed_installation_is_removed_by_uninstall() {
    let it = InstallFixture::plain();
    let (before, root) = (it.files(), it.root());
    let url = format!("http://{}", it.server.address());
    let line = it.line(&[]);
    let code = token_of(&line).to_owned();
    let mut child = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(["install", "--server", &url, "--root", &root, "--no-listen"])
        .env(TOKEN_VARIABLE, code)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let journal = it.host.path("root/var/lib/topdeck-agent/journal");
    wait_until("the agent runs", || journal.exists());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_ne!(it.files(), before);
    topdeck(&["uninstall", "--root", &root]).check(true, &["stop the agent"]);
    assert_eq!(it.files(), before);
}

/// A use that was acknowledged is spent also after `kill -9`, and the host's token is valid.
#[test]
fn enrollment_outlives_a_killed_server() {
    let mut it = InstallFixture::plain();
    let line = it.line(&["--uses", "2"]);
    let code = format!("Bearer {}", token_of(&line));
    let enroll = |it: &InstallFixture| {
        let headers = [("Authorization", code.as_str())];
        let body = b"{\"name\":\"web\"}";
        request_at(it.server.address(), "POST", "/v1/enroll", &headers, body).unwrap()
    };
    let first = enroll(&it).json();
    it.server.kill();
    it.server.start();
    let second = enroll(&it).json();
    assert_eq!(second["name"], "web.2");
    it.server.kill();
    it.server.start();
    let third = enroll(&it);
    assert_eq!(third.status, 403, "{}", third.text());
    assert!(third.text().contains("has no uses left"), "{}", third.text());
    let bearer = |host: &serde_json::Value| format!("Bearer {}", host["token"].as_str().unwrap());
    let own = bearer(&first);
    let headers = [("Authorization", own.as_str())];
    let found = request_at(it.server.address(), "GET", "/v1/enroll", &headers, b"").unwrap();
    assert_eq!(found.json()["name"], "web", "{}", found.text());
    // Only a host that sent nothing gives its use back.
    let sent = request_at(it.server.address(), "POST", "/v1/record?metric=a", &headers, b"1");
    assert_eq!(sent.unwrap().status, 200);
    for (host, status) in [(&first, 403), (&second, 201)] {
        let own = bearer(host);
        let headers = [("Authorization", own.as_str())];
        let removed = request_at(it.server.address(), "DELETE", "/v1/enroll", &headers, b"");
        assert_eq!(removed.unwrap().status, 200);
        assert_eq!(enroll(&it).status, status);
    }
    // A revoked token enrolls nobody, at once.
    let line = it.line(&["--name", "late"]);
    let late = format!("Bearer {}", token_of(&line));
    topdeck(&["token", &it.data(), "remove", "late"]).check(true, &[]);
    let headers = [("Authorization", late.as_str())];
    let body = b"{\"name\":\"web\"}";
    let refused = request_at(it.server.address(), "POST", "/v1/enroll", &headers, body).unwrap();
    assert_eq!(refused.status, 401, "{}", refused.text());
}
