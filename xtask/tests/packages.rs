//! `cargo xtask packages` with small files in place of the binaries: bytes and contents of each
//! package, read by other programs than those that wrote them.
//!
//! What needs root and a bare system is in `make system PART=packages`.
#![forbid(unsafe_code)]

#[path = "packages/archive.rs"]
mod archive;
#[path = "packages/deb.rs"]
mod deb;
#[path = "packages/kubernetes.rs"]
mod kubernetes;
#[path = "packages/oci.rs"]
mod oci;
#[path = "packages/package_fixture.rs"]
mod package_fixture;
#[path = "packages/reproducible.rs"]
mod reproducible;
#[path = "packages/rpm.rs"]
mod rpm;
#[path = "packages/sbom.rs"]
mod sbom;
#[path = "packages/signature.rs"]
mod signature;
#[path = "packages/units.rs"]
mod units;
#[path = "packages/yaml.rs"]
mod yaml;
