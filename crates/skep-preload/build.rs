//! Compiles `src/preloaded.rs` to a shared library, which `src/lib.rs` embeds.
//!
//! Cargo cannot embed one crate's shared library in another. And the library must need nothing: it is loaded into any
//! program, before that program's own libraries. So it is compiled here, without the standard library, and linked with
//! nothing; the few functions of libc that it calls are found when it is loaded.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(has_library)");
    let set = |name: &str| env::var(name).unwrap_or_default();
    let known = matches!(&*set("CARGO_CFG_TARGET_ARCH"), "x86_64" | "aarch64");
    // Other targets' compilers may not make shared libraries; there the supervisor answers all calls.
    if set("CARGO_CFG_TARGET_OS") != "linux" || set("CARGO_CFG_TARGET_ENV") != "gnu" || !known {
        return;
    }
    let library = PathBuf::from(set("OUT_DIR")).join("libskep_preload.so");
    let mut command = Command::new(set("RUSTC"));
    command.args([
        "--edition=2024",
        "--crate-name=skep_preload",
        "--crate-type=cdylib",
        "-Adead_code",
        "--target",
    ]);
    command.arg(set("TARGET")).arg("-o").arg(&library);
    for option in ["panic=abort", "opt-level=3", "codegen-units=1", "debuginfo=0", "strip=debuginfo"] {
        command.arg("-C").arg(option);
    }
    command.args(["-C", "link-args=-nostdlib -nostartfiles -Wl,--gc-sections -Wl,-z,now"]);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = std::ffi::OsString::from("linker=");
        option.push(linker);
        command.arg("-C").arg(option);
    }
    let output = command.arg("src/preloaded.rs").output();
    match output {
        Ok(output) if output.status.success() => println!("cargo::rustc-cfg=has_library"),
        // Who only checks the code for another target needs no linker for it.
        Ok(_) if set("HOST") != set("TARGET") && env::var_os("RUSTC_LINKER").is_none() => {
            println!(
                "cargo::warning=no linker is set for {}: skep exec gets no library there",
                set("TARGET")
            );
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).replace('\n', "\ncargo::error=");
            println!("cargo::error=cannot compile src/preloaded.rs to a shared library: {text}");
        }
        Err(error) => println!("cargo::error=cannot start {}: {error}", set("RUSTC")),
    }
}
