//! `--host`: functions of another host, declared in a file.

use crate::{Said, Scratch, command, from_output, object, skep};
use skep_testkit::skip;
use std::process::Command;

const HEADER: &str = "crates/skep-cli/tests/objects/host_functions.h";
const TINY: &str = "examples/captures/tiny.pcap";

#[test]
fn a_program_that_calls_a_hosts_function_is_verified_run_and_dumped() {
    let (plugin, host) = (object("unknown_helper"), object("host_functions"));
    let refused = skep(&["verify", &plugin]);
    assert_eq!(refused.status, Some(1));
    assert!(
        refused.out.contains("there is no helper 9999") && refused.out.contains("--host FILE"),
        "{}",
        refused.out
    );
    let said = skep(&["verify", &plugin, "--host", &host, "--json"]);
    assert_eq!(said.json()["verdict"], "accepted", "{}", said.err);
    let run = |more: &[&str]| {
        let all = [&["run", &plugin, "--pcap", TINY, "--host", &host, "--json"], more].concat();
        skep(&all).json()["verdicts"].clone()
    };
    assert_eq!(run(&[])["drop"], 20, "a function that is not here returns 0");
    assert_eq!(run(&["--host-returns", "no_such_helper=-2"])["pass"], 20);
    assert_eq!(run(&["--host-returns", "no_such_helper=1", "--interp"])["pass"], 20);
    for form in ["xlated", "jited"] {
        assert_eq!(skep(&["prog", "dump", form, &plugin, "--host", &host]).status, Some(0), "{form}");
    }
}

#[test]
fn wrong_results_and_files_are_refused_with_the_remedy() {
    let (plugin, host) = (object("unknown_helper"), object("host_functions"));
    let run = |more: &[&str]| skep(&[&["run", &plugin, "--pcap", TINY], more].concat());
    run(&["--host", &host, "--host-returns", "nobody=1"]).refused(1, &["nobody", "no_such_helper, tenant"]);
    run(&["--host", &host, "--host-returns", "tenant=256"])
        .refused(1, &["tenant", "does not allow the result 256"]);
    run(&["--host", &host, "--host-returns", "tenant"]).refused(2, &["NAME=VALUE"]);
    run(&["--host-returns", "tenant=1"]).refused(2, &["--host <FILE>"]);
    run(&["--host", &plugin]).refused(1, &["declares no function", "-Dstatic="]);
    run(&["--host", "no/such/file.o"]).refused(1, &["no/such/file.o"]);
    let verify = skep(&["verify", &plugin, "--host", &plugin]);
    verify.refused(1, &["declares no function"]);
}

/// What skep says with that compiler.
fn with_clang(clang: &str, arguments: &[&str]) -> Said {
    from_output(&command().args(arguments).env("CLANG", clang).output().unwrap())
}

#[test]
fn a_header_is_compiled_by_clang() {
    let plugin = object("unknown_helper");
    let missing = with_clang("no-such-clang", &["verify", &plugin, "--host", HEADER]);
    missing.refused(1, &["cannot run no-such-clang", "environment variable CLANG"]);
    if Command::new("clang-19").arg("--version").output().is_err() {
        return skip("a header of a host", "clang-19 not found");
    }
    let said = with_clang("clang-19", &["verify", &plugin, "--host", HEADER, "--json"]);
    assert_eq!(said.json()["verdict"], "accepted", "{}", said.err);
    let wrong = Scratch::new("wrong.h", b"static int (*const f)(int) = ");
    with_clang("clang-19", &["verify", &plugin, "--host", wrong.path()])
        .refused(1, &["is not C that clang reads", "expected expression"]);
}
