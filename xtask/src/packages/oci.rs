//! The image `topdeck-VERSION-oci.tar`: an OCI image layout with one index for all architectures.
//!
//! Format: OCI Image Format Specification 1.1: `oci-layout`, `index.json`, and blobs by digest:
//! index, manifests, configurations, layers. The image has one layer with the static program, its
//! settings, names of its user and the empty directory of the data; there is no shell. It is
//! written without a daemon, and pushed or loaded by skopeo, podman, crane or containerd.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Value, json};

use super::PackageDir;
use super::calendar::UtcTime;
use super::checksums::sha256_hex;
use super::file_tree::FileTree;
use super::installed_tree::{HOMEPAGE, SUMMARY};
use super::package_source::{PackageSource, repo_file};
use super::tar_writer::{gzip, tar};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Number of the user and group: not one of a distribution, and what images without a shell use.
const USER: u32 = 65_532;
const DATA_DIR: &str = "var/lib/topdeck";

/// Writes the image of all sources, which are of one version.
pub(super) fn write(sources: &[PackageSource], files: &mut PackageDir) -> Result<()> {
    let Some(source) = sources.first() else { return Ok(()) };
    let mut blobs = BlobStore::default();
    let manifests = sources.iter().map(|source| add_manifest(source, &mut blobs));
    let manifests = manifests.collect::<Result<Vec<Value>>>()?;
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    let mut index = blobs.add_json(INDEX, &index);
    index["annotations"] = json!({ "org.opencontainers.image.ref.name": source.version });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [index] });

    let mut tree = FileTree::default();
    tree.add("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string().into_bytes());
    tree.add("index.json", index.to_string().into_bytes());
    for (digest, bytes) in blobs.blobs {
        tree.add(&format!("blobs/sha256/{digest}"), bytes);
    }
    let name = format!("topdeck-{}-oci.tar", source.version);
    files.write(&name, &tar(&tree, "", source.time_s)?)
}

/// Blobs by digest.
#[derive(Default)]
struct BlobStore {
    blobs: BTreeMap<String, Vec<u8>>,
}

impl BlobStore {
    /// Adds a blob and returns its descriptor.
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let (digest, size) = (sha256_hex(&bytes), bytes.len());
        self.blobs.insert(digest.clone(), bytes);
        json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size })
    }

    fn add_json(&mut self, media_type: &str, value: &Value) -> Value {
        self.add(media_type, value.to_string().into_bytes())
    }
}

/// Adds the image of an architecture and returns the descriptor of its manifest.
fn add_manifest(source: &PackageSource, blobs: &mut BlobStore) -> Result<Value> {
    let layer = tar(&layer_tree(source)?, "", source.time_s)?;
    let diff_id = format!("sha256:{}", sha256_hex(&layer));
    let layer = blobs.add(LAYER, gzip(&layer));
    let config = blobs.add_json(CONFIG, &image_config(source, &diff_id));
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
        "annotations": labels(source),
    });
    let mut descriptor = blobs.add_json(MANIFEST, &manifest);
    descriptor["platform"] = json!({ "architecture": source.arch.debian, "os": "linux" });
    Ok(descriptor)
}

fn layer_tree(source: &PackageSource) -> Result<FileTree> {
    let mut tree = FileTree::default();
    tree.add_program("usr/bin/topdeck", source.binary.clone());
    tree.add_settings("etc/topdeck/topdeck.toml", repo_file("packaging/oci/topdeck.toml")?);
    let user = format!("topdeck:x:{USER}:{USER}::/{DATA_DIR}:/nologin\n");
    tree.add("etc/passwd", format!("root:x:0:0::/:/nologin\n{user}").into_bytes());
    tree.add("etc/group", format!("root:x:0:\ntopdeck:x:{USER}:\n").into_bytes());
    tree.add("usr/share/doc/topdeck/LICENSE", repo_file("LICENSE")?);
    tree.add_dir(DATA_DIR, 0o750, USER);
    Ok(tree)
}

fn image_config(source: &PackageSource, diff_id: &str) -> Value {
    let created = UtcTime::new(source.time_s).rfc_3339();
    json!({
        "created": created,
        "architecture": source.arch.debian,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/usr/bin/topdeck"],
            "Cmd": ["serve", "--config", "/etc/topdeck/topdeck.toml"],
            "Env": ["PATH=/usr/bin"],
            "WorkingDir": format!("/{DATA_DIR}"),
            "ExposedPorts": { "7717/tcp": {}, "4317/tcp": {}, "4318/tcp": {} },
            "Volumes": { format!("/{DATA_DIR}"): {} },
            "StopSignal": "SIGTERM",
            "Labels": labels(source),
        },
        "rootfs": { "type": "layers", "diff_ids": [diff_id] },
        "history": [{ "created": created, "created_by": "cargo xtask packages" }],
    })
}

fn labels(source: &PackageSource) -> Value {
    json!({
        "org.opencontainers.image.created": UtcTime::new(source.time_s).rfc_3339(),
        "org.opencontainers.image.description": SUMMARY,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.source": HOMEPAGE,
        "org.opencontainers.image.title": "topdeck",
        "org.opencontainers.image.version": source.version,
    })
}
