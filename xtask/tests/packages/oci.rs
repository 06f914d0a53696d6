//! The OCI image: digests, sizes and fields of each blob, and files of the layers, as GNU tar and
//! gzip read them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::package_fixture::{BINARY, PackageFixture, VERSION, output_of};

/// The unpacked layout; `None` without tar.
fn unpacked(name: &str) -> Option<PathBuf> {
    let fixture = PackageFixture::shared();
    let dir = fixture.dir.join(name);
    fs::create_dir_all(&dir).unwrap();
    let package = fixture.package(&format!("topdeck-{VERSION}-oci.tar"));
    output_of("tar", &["-xf", package.to_str().unwrap(), "-C", dir.to_str().unwrap()])?;
    Some(dir)
}

/// Bytes of the blob of a descriptor, whose digest and size are checked.
#[track_caller]
fn blob(dir: &Path, descriptor: &Value, media_type: &str) -> PathBuf {
    assert_eq!(descriptor["mediaType"], media_type);
    let digest = descriptor["digest"].as_str().unwrap();
    let digest = digest.strip_prefix("sha256:").expect(digest);
    let path = dir.join("blobs/sha256").join(digest);
    assert_eq!(descriptor["size"].as_u64(), Some(fs::metadata(&path).unwrap().len()));
    assert_eq!(sha256(&format!("cat {}", path.display())), digest);
    path
}

/// Digest of the output of a shell command, by sha256sum.
fn sha256(command: &str) -> String {
    let output = Command::new("sh").arg("-c").arg(format!("{command} | sha256sum")).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    text.split_whitespace().next().unwrap().to_owned()
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn layout_has_an_index_of_both_architectures() {
    let Some(dir) = unpacked("oci-index") else { return };
    assert_eq!(read_json(&dir.join("oci-layout")), json!({ "imageLayoutVersion": "1.0.0" }));
    let outer = read_json(&dir.join("index.json"));
    assert_eq!(outer["schemaVersion"], 2);
    let index = &outer["manifests"][0];
    assert_eq!(index["annotations"]["org.opencontainers.image.ref.name"], VERSION);
    let index = read_json(&blob(&dir, index, "application/vnd.oci.image.index.v1+json"));
    let platforms: Vec<&Value> =
        index["manifests"].as_array().unwrap().iter().map(|it| &it["platform"]).collect();
    let platform = |arch: &str| json!({ "architecture": arch, "os": "linux" });
    assert_eq!(platforms, [&platform("amd64"), &platform("arm64")]);
    // Blobs: the index, and manifest, configuration and layer of each architecture.
    assert_eq!(fs::read_dir(dir.join("blobs/sha256")).unwrap().count(), 7);
}

#[test]
fn images_run_as_a_user_without_rights() {
    let Some(dir) = unpacked("oci-images") else { return };
    let index = &read_json(&dir.join("index.json"))["manifests"][0];
    let index = read_json(&blob(&dir, index, "application/vnd.oci.image.index.v1+json"));
    for (descriptor, machine) in
        index["manifests"].as_array().unwrap().iter().zip(["x86_64", "aarch64"])
    {
        let manifest = blob(&dir, descriptor, "application/vnd.oci.image.manifest.v1+json");
        let manifest = read_json(&manifest);
        let config = blob(&dir, &manifest["config"], "application/vnd.oci.image.config.v1+json");
        let config = read_json(&config);
        assert_eq!(config["architecture"], descriptor["platform"]["architecture"]);
        assert_eq!(config["created"], "2026-01-02T03:04:05Z");
        let run = &config["config"];
        assert_eq!(run["User"], "65532:65532");
        assert_eq!(run["Entrypoint"], json!(["/usr/bin/topdeck"]));
        assert_eq!(run["Volumes"], json!({ "/var/lib/topdeck": {} }));
        assert_eq!(run["Labels"]["org.opencontainers.image.version"], VERSION);

        assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
        let layer = &manifest["layers"][0];
        let layer = blob(&dir, layer, "application/vnd.oci.image.layer.v1.tar+gzip");
        let layer = layer.to_str().unwrap();
        let diff_id = format!("sha256:{}", sha256(&format!("gzip -dc <{layer}")));
        assert_eq!(config["rootfs"], json!({ "type": "layers", "diff_ids": [diff_id] }));
        let list = output_of("tar", &["--numeric-owner", "-tvzf", layer]).unwrap();
        let has = |start: &str, end: &str| {
            list.lines().any(|line| line.starts_with(start) && line.ends_with(end))
        };
        assert!(has("drwxr-x--- 65532/65532 ", " var/lib/topdeck/"), "{list}");
        assert!(has("-rwxr-xr-x 0/0 ", " usr/bin/topdeck"), "{list}");
        assert!(has("-rw-r--r-- 0/0 ", " etc/topdeck/topdeck.toml"), "{list}");
        let program = output_of("tar", &["-xOzf", layer, "usr/bin/topdeck"]).unwrap();
        assert_eq!(program, format!("{BINARY}# {machine}\n"));
    }
}
