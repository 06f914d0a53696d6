//! Manifests and chart, checked with the types of Kubernetes and rendered by Helm, whose libraries
//! are fetched and compiled first (`testdata/kubernetes`); the base and its components, rendered by
//! kubectl.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::path_text;
use crate::command_line::{CommandLine, root, target};
use crate::part_log::PartLog;

const BASE: [&str; 2] =
    ["packaging/kubernetes/base/server.yaml", "packaging/kubernetes/base/agent.yaml"];
const CHART: &str = "packaging/kubernetes/chart";
const FIELDS: &str = "testdata/kubernetes/fields.txt";

/// Values of the chart, and the capabilities that the agent then has.
const RENDERINGS: [(&[&str], &str); 6] = [
    (&[], r#"["BPF","PERFMON"]"#),
    (&["agent.sources.wire=true"], r#"["BPF","PERFMON","NET_RAW"]"#),
    (&["agent.sources.bpf=false", "server.enabled=false"], "[]"),
    (&["agent.sources.bpf=false", "agent.sources.wire=true"], r#"["NET_RAW"]"#),
    (
        &["agent.sources.wire=true", "agent.sources.wireTls=true"],
        r#"["BPF","PERFMON","NET_RAW","CHECKPOINT_RESTORE","SYS_PTRACE"]"#,
    ),
    (
        &["agent.sources.programs=true", "server.storage.className=fast"],
        r#"["BPF","PERFMON","DAC_READ_SEARCH","SYS_PTRACE"]"#,
    ),
];

/// Runs the checks. Returns the reason if they cannot run on this machine.
pub(super) fn check(log: &PartLog, dir: &Path) -> Result<Option<String>> {
    if !CommandLine::new("go version").succeeds() {
        return Ok(Some("Go is not installed (Debian package golang-go)".to_owned()));
    }
    let module = root().join("testdata/kubernetes");
    let program = target().join("kubernetes-check");
    let line = CommandLine::new("go build -C").arg(path_text(&module)?).arg("-o");
    if let Some(reason) = line.arg(path_text(&program)?).arg(".").fetch(log)? {
        return Ok(Some(reason));
    }
    let checker = ManifestChecker { program };
    let base = BASE.map(|path| path_text(&root().join(path)).map(str::to_owned));
    let base = base.into_iter().collect::<Result<Vec<String>>>()?;
    let found = checker.run("fields", &base)?;
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(root().join(FIELDS), &found)?;
    }
    let recorded = fs::read_to_string(root().join(FIELDS)).unwrap_or_default();
    ensure!(
        found == recorded,
        "{FIELDS} differs from the types of Kubernetes; rewrite it with UPDATE_EXPECT=1 make \
         system PART=packages, and review the difference:\n{found}"
    );
    for (settings, capabilities) in RENDERINGS {
        checker.check_rendering(settings, capabilities, dir)?;
    }
    checker.check_kustomizations(log, dir)?;
    Ok(None)
}

struct ManifestChecker {
    program: PathBuf,
}

impl ManifestChecker {
    fn run(&self, verb: &str, arguments: &[String]) -> Result<String> {
        let line = CommandLine::from_path(&self.program).arg(verb);
        let line = arguments.iter().fold(line, |line, argument| line.arg(argument));
        Ok(String::from_utf8(line.stdout()?)?)
    }

    fn check_rendering(&self, settings: &[&str], capabilities: &str, dir: &Path) -> Result<()> {
        let mut arguments = vec![path_text(&root().join(CHART))?.to_owned()];
        arguments.extend(settings.iter().map(|setting| (*setting).to_owned()));
        let text = self.run("render", &arguments)?;
        let objects = self.check_text(&text, &dir.join("rendered.yaml"))?;
        let expected: &[&str] = match settings.contains(&"server.enabled=false") {
            true => &["ConfigMap topdeck-agent", "DaemonSet topdeck-agent"],
            false => &[
                "ConfigMap topdeck",
                "ConfigMap topdeck-agent",
                "DaemonSet topdeck-agent",
                "Service topdeck",
                "StatefulSet topdeck",
            ],
        };
        ensure!(objects == expected, "{settings:?}: found {objects:?}, expected {expected:?}");
        let line = format!("              add: {capabilities}");
        ensure!(text.lines().any(|it| it == line), "{settings:?}: no line {line:?} in\n{text}");
        Ok(())
    }

    /// Kinds and names of the objects of a text, sorted; each was decoded strictly.
    fn check_text(&self, text: &str, path: &Path) -> Result<Vec<String>> {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        let objects = self.run("check", &[path_text(path)?.to_owned()])?;
        let mut objects: Vec<String> = objects.lines().map(str::to_owned).collect();
        objects.sort_unstable();
        Ok(objects)
    }

    /// The base with all components.
    fn check_kustomizations(&self, log: &PartLog, dir: &Path) -> Result<()> {
        if !CommandLine::new("kubectl kustomize --help").succeeds() {
            log.note("kubectl is not installed: the components are not rendered");
            return Ok(());
        }
        let overlay = dir.join("kubernetes");
        copy_dir(&root().join("packaging/kubernetes"), &overlay)?;
        let text = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n\
                    resources: [../base]\ncomponents: [../components/wire, \
                    ../components/wire-tls, ../components/programs]\n";
        fs::create_dir(overlay.join("all"))?;
        fs::write(overlay.join("all/kustomization.yaml"), text)?;
        let line = CommandLine::new("kubectl kustomize").arg(path_text(&overlay.join("all"))?);
        let text = String::from_utf8(line.stdout()?)?;
        let objects = self.check_text(&text, &dir.join("kustomized.yaml"))?;
        ensure!(objects.len() == 5, "found {objects:?}, expected 5 objects");
        for right in ["BPF", "NET_RAW", "CHECKPOINT_RESTORE", "DAC_READ_SEARCH", "SYS_PTRACE"] {
            let line = format!("- {right}");
            ensure!(text.lines().any(|it| it.trim() == line), "no capability {right} in\n{text}");
        }
        Ok(())
    }
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let path = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_dir(&entry.path(), &path)?,
            false => {
                fs::copy(entry.path(), path)?;
            }
        }
    }
    Ok(())
}
