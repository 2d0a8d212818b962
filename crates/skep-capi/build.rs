//! Sets the soname of the shared library, so that programs linked to it request a compatible ABI.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Before 1.0 every minor version may break the ABI.
    let [major, minor] = ["CARGO_PKG_VERSION_MAJOR", "CARGO_PKG_VERSION_MINOR"]
        .map(|name| std::env::var(name).expect("cargo sets it"));
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libskep.so.{major}.{minor}");
}
