//! Sets `cfg(loom)` for this package alone: as a flag of the compiler it would reach every
//! dependency.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rerun-if-changed=build.rs");
}
