//! How the shared library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Whoever links to it looks for it by its name, not by the path it had then.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtopdeck.so");
    // Threads and forks call back into it, so it stays, also after `dlclose`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
