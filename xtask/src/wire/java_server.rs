//! Servers from Maven: their classes, downloaded once into `target/clients`, and Java.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::server_process::{ServerDir, find_program};
use crate::command_line::{CommandLine, target};
use crate::part_log::PartLog;

/// Copies a package with all packages that it depends on.
const COPY: &str = "dependency:copy-dependencies";

/// A package of Maven.
pub(super) struct JavaPackage {
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) version: &'static str,
}

/// Java with the classes of a package.
pub(super) struct JavaClasses {
    java: PathBuf,
    classes: PathBuf,
}

impl JavaPackage {
    /// Provides the package, or returns the reason why it is not available.
    pub(super) fn provide(
        &self,
        log: &PartLog,
    ) -> Result<std::result::Result<JavaClasses, String>> {
        let Some(java) = find_program("java") else {
            return Ok(Err("Java is not installed (Debian package default-jre)".to_owned()));
        };
        let dir = target().join("clients").join(format!("{}-{}", self.name, self.version));
        let (classes, done) = (dir.join("classes"), dir.join("done"));
        if !done.exists() {
            if find_program("mvn").is_none() {
                return Ok(Err("Maven is not installed (Debian package maven)".to_owned()));
            }
            fs::create_dir_all(&dir)?;
            let project = dir.join("pom.xml");
            fs::write(&project, self.project())?;
            log.note(&format!("downloading {} {}, once", self.name, self.version));
            let (project, output) = (utf8(&project)?, utf8(&classes)?);
            let line = CommandLine::new("mvn -q -B -f").arg(project).arg(COPY);
            let failed = line.arg(&format!("-DoutputDirectory={output}")).fetch(log)?;
            if let Some(reason) = failed {
                return Ok(Err(format!("cannot download {}: {reason}", self.name)));
            }
            fs::write(done, "")?;
        }
        Ok(Ok(JavaClasses { java, classes }))
    }

    fn project(&self) -> String {
        let JavaPackage { group, name, version } = self;
        format!(
            "<project><modelVersion>4.0.0</modelVersion><groupId>topdeck</groupId>\
             <artifactId>wire</artifactId><version>1</version><dependencies><dependency>\
             <groupId>{group}</groupId><artifactId>{name}</artifactId>\
             <version>{version}</version></dependency></dependencies></project>"
        )
    }
}

impl JavaClasses {
    /// Java with options of the virtual machine; the class and its arguments follow.
    pub(super) fn command(&self, dir: &ServerDir, options: &[&str]) -> Result<Command> {
        let mut command = dir.command(&self.java)?;
        command.args(["-Xms256m", "-Xmx512m", "-XX:+UseSerialGC"]).args(options);
        command.arg("-cp").arg(self.classes.join("*"));
        Ok(command)
    }

    /// The class file archive whose name starts with `name`.
    pub(super) fn archive(&self, name: &str) -> Result<PathBuf> {
        let files = fs::read_dir(&self.classes)?.flatten().map(|file| file.path());
        let is_named = |path: &PathBuf| {
            path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))
        };
        let mut found = files.filter(is_named);
        found.next().with_context(|| format!("no {name} in {}", self.classes.display()))
    }
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().context("the path of the repository is not UTF-8")
}
