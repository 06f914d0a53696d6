//! Embeds the built web UI. Without `web/dist` a release build fails with the command that makes
//! it; a build for tests goes on without the page, so that it needs no Node.js.

#[path = "src/page_requirement.rs"]
mod page_requirement;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use page_requirement::{PageChoice, WITHOUT_PAGE, choose_page};

fn main() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    let built = web.join("dist");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where to"));
    // Cargo treats a missing path as changed on every build, and would recompile this crate, `api`
    // and the binary each time. Until `web/dist` exists, its parent is watched instead.
    let watched = if built.exists() { &built } else { &web };
    println!("cargo::rerun-if-changed={}", watched.display());
    println!("cargo::rerun-if-env-changed={WITHOUT_PAGE}");
    let profile = std::env::var("PROFILE").expect("cargo says which");
    let without = std::env::var(WITHOUT_PAGE).ok();
    let mut files = Vec::new();
    let choice = choose_page(&profile, built.join("index.html").exists(), without.as_deref());
    let choice = choice.unwrap_or_else(|error| {
        println!("cargo::error={error}");
        std::process::exit(1);
    });
    if choice == PageChoice::Embed {
        collect_files(&built, &built, &mut files);
    }
    files.sort();
    let mut list = String::from("&[\n");
    for (number, (name, path)) in files.iter().enumerate() {
        println!("cargo::rerun-if-changed={}", path.display());
        let bytes = fs::read(path).expect("a file that was just found");
        let packed = out.join(format!("{number}.gz"));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&bytes).expect("memory takes what is written");
        fs::write(&packed, encoder.finish().expect("memory takes what is written"))
            .expect("the build's own directory can be written");
        let tag = &blake3::hash(&bytes).to_hex()[..16];
        writeln!(
            list,
            "    Asset {{ path: {name:?}, content_type: {:?}, etag: {tag:?}, gzip_bytes: \
             include_bytes!({packed:?}) }},",
            content_type(name)
        )
        .expect("a text takes what is written");
    }
    list += "]";
    fs::write(out.join("files.rs"), list).expect("the build's own directory can be written");
}

fn collect_files(root: &Path, dir: &Path, files: &mut Vec<(String, PathBuf)>) {
    for entry in fs::read_dir(dir).expect("a directory that was just found") {
        let path = entry.expect("a directory that can be read").path();
        if path.is_dir() {
            collect_files(root, &path, files);
            continue;
        }
        let name = path.strip_prefix(root).expect("below the root").to_str();
        files.push((format!("/{}", name.expect("names are ASCII")), path.clone()));
    }
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        other => panic!("web/dist has {name}: say here what browsers take .{other:?} for"),
    }
}
