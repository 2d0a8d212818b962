//! Clients of aya, libbpf-rs and cilium/ebpf, on the devices of `examples/clients/ports.toml`.
//!
//! Each is built from its lock file into a folder below `target`. The three attach the same programs to one end of a
//! cable and send the same frames out of the other, so they print the same.

use super::{Place, source};
use skep_testkit::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

const ARRIVED: &str = "xdp: 60 bytes of 0800\nxdp: 42 bytes of 0806, refused\nxdp: 100 bytes of 86dd\n";
const SAMPLED: &str = "tc: 60 bytes of 0800\ntc: 100 bytes of 86dd\n";
const COUNTED: &str = "0800: 1 arrived, 1 passed\n0806: 1 arrived, 0 passed\n86dd: 1 arrived, 1 passed\n";

/// The Go of Debian 12's backports is not on the search path.
const GO: [&str; 2] = ["go", "/usr/lib/go-1.23/bin/go"];

/// The oldest Go that builds the client, as its `go.mod` says.
const GO_MINOR: u32 = 23;

#[test]
fn a_static_client_of_aya_attaches_and_reads_a_ring_buffer() {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let library =
        Command::new("rustc").args(["--print", "target-libdir", "--target", &target]).output().unwrap();
    if !Path::new(String::from_utf8_lossy(&library.stdout).trim()).exists() {
        return skip("a client of aya", &format!("no standard library for it (rustup target add {target})"));
    }
    let client = cargo("aya", &["--target", &target]).join(&target).join("debug/client");
    let Some(out) = on_ports("aya", &client) else { return };
    assert_eq!(out, [ARRIVED, COUNTED].concat());
}

#[test]
fn a_client_of_libbpf_rs_attaches_by_netlink_and_reads_both_buffers() {
    let needs = ["/usr/include/libelf.h", "/usr/include/zlib.h", "/usr/bin/make", "/usr/bin/pkg-config"];
    if let Some(missing) = needs.into_iter().find(|file| !Path::new(file).exists()) {
        return skip("a client of libbpf-rs", &format!("{missing} not found"));
    }
    let client = cargo("libbpf-rs", &[]).join("debug/client");
    let Some(out) = on_ports("libbpf-rs", &client) else { return };
    assert_eq!(out, [ARRIVED, SAMPLED, COUNTED].concat());
}

#[test]
fn a_client_of_cilium_ebpf_attaches_and_reads_both_buffers() {
    let Some(go) = GO.into_iter().find(|go| is_new_enough(go)) else {
        return skip("a client of cilium/ebpf", &format!("Go 1.{GO_MINOR} or later not found"));
    };
    let client = built("go").join("client");
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&client).arg(".").current_dir(source("go"));
    succeed(build.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly -buildvcs=false"));
    let Some(out) = on_ports("go", &client) else { return };
    assert_eq!(out, [ARRIVED, SAMPLED, COUNTED].concat());
}

/// What a client prints on the devices of `ports.toml`.
fn on_ports(name: &str, client: &Path) -> Option<String> {
    let place = Place::new(name);
    place.copy(client);
    place.copy(&source("port.bpf.o"));
    place.copy(&source("ports.toml"));
    place.exec(&["--world", "ports.toml", "--", "./client", "port.bpf.o"])
}

/// The folder of what is built of a client.
fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(name)
}

/// Builds a client as its lock file says; the target directory. Profiles and flags that were meant for skep are not
/// passed on.
fn cargo(name: &str, arguments: &[&str]) -> PathBuf {
    let target = built(name);
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet", "--locked", "--target-dir"]).arg(&target).args(arguments);
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if name.starts_with("CARGO_PROFILE_")
            || name.starts_with("CARGO_TARGET_")
            || name.ends_with("RUSTFLAGS")
        {
            build.env_remove(&variable);
        }
    }
    succeed(build.current_dir(source(name)));
    target
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether `go version` says "go version go1.23.5 linux/amd64" or later.
fn is_new_enough(go: &str) -> bool {
    let Ok(said) = Command::new(go).arg("version").output() else { return false };
    let said = String::from_utf8_lossy(&said.stdout);
    let minor = said.split_once("go1.").and_then(|(_, rest)| rest.split(['.', ' ']).next()?.parse().ok());
    minor.is_some_and(|minor: u32| minor >= GO_MINOR)
}
