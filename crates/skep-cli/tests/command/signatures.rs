//! Objects with signatures.

use crate::{Scratch, skep};

const FOLDER: &str = "crates/skep/tests/signatures";

fn path(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

#[test]
fn an_object_is_run_and_verified_only_with_a_signature_of_somebody_who_is_trusted() {
    let (object, signature) = (path("content"), path("rsa-sha256"));
    let (trusted, other) = (path("rsa.cert"), path("p256.cert"));
    let run =
        |options: &[&str]| skep(&[&["run", &object, "--data-in", "README.md", "--json"], options].concat());
    run(&["--signature", &signature, "--trusted", &other, "--trusted", &trusted]).json();
    let verify = |options: &[&str]| skep(&[&["verify", &object, "--json"], options].concat());
    let accepted = verify(&["--signature", &signature, "--trusted", &trusted]).json();
    assert_eq!(accepted[0]["verdict"], "accepted");
    for command in [&run as &dyn Fn(&[&str]) -> _, &verify] {
        command(&["--trusted", &trusted]).refused(1, &[&object, "is not signed"]);
        command(&["--signature", &signature, "--trusted", &other])
            .refused(1, &[&object, "CN=rsa", "not trusted"]);
        command(&["--signature", &path("of-other-content"), "--trusted", &trusted])
            .refused(1, &[&object, "CN=rsa", "differs from the one that was signed"]);
        command(&["--signature", &object, "--trusted", &trusted]).refused(1, &["not CMS", "openssl cms"]);
        command(&["--signature", &signature, "--trusted", &object])
            .refused(1, &[&object, "not a certificate"]);
        command(&["--signature", &signature]).refused(2, &["--trusted"]);
    }
}

#[test]
fn a_signature_is_for_one_object() {
    let signed = ["--signature", &path("rsa-sha256"), "--trusted", &path("rsa.cert")];
    let two = skep(&[&["verify", &path("content"), "examples/firewall.bpf.o"], &signed[..]].concat());
    two.refused(2, &["--signature is for one object"]);
    let mut bytes = std::fs::read(crate::root().join(path("content"))).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let changed = Scratch::new("changed", &bytes);
    skep(&[&["verify", changed.path()], &signed[..]].concat())
        .refused(1, &[changed.path(), "differs from the one that was signed"]);
}

#[test]
fn an_application_is_not_started_with_keys_that_are_none() {
    skep(&["exec", "--require-signatures", "true"]).refused(2, &["--trusted"]);
    skep(&["exec", "--trusted", "README.md", "true"]).refused(1, &["README.md", "not a certificate"]);
}
