//! Notes how the suite was built, for the results to say.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTFLAGS");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map_or_else(
        |_| String::new(),
        |said| String::from_utf8_lossy(&said.stdout).trim().to_owned(),
    );
    println!("cargo::rustc-env=BENCH_RUSTC={version}");
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS")
        .unwrap_or_default()
        .replace('\u{1f}', " ");
    println!("cargo::rustc-env=BENCH_RUSTFLAGS={flags}");
    let features: Vec<String> = env::vars()
        .filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_lowercase().replace('_', "-")))
        .filter(|feature| feature != "default")
        .collect();
    println!("cargo::rustc-env=BENCH_FEATURES={}", features.join(","));
}
