//! Sets `cfg(loom)` for this package only; as a compiler flag it would affect all dependencies.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rerun-if-changed=build.rs");
}
