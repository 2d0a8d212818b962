//! Wrong usage.

use super::bench;

#[test]
fn the_help_names_every_benchmark() {
    let help = bench(&["--help"]);
    assert_eq!(help.status, Some(0));
    let names = [
        "alloc",
        "exec",
        "exec-calls",
        "flow-dissector",
        "htab-mem",
        "load",
        "map",
        "pack",
        "poke",
        "tail-call",
        "verify",
        "world",
    ];
    for name in names {
        assert!(help.out.contains(&format!("\n  {name} ")), "{name} is missing in: {}", help.out);
    }
}

#[test]
fn a_benchmark_that_no_kernel_can_run_refuses_linux() {
    for name in ["alloc", "exec", "load", "pack", "poke", "world"] {
        bench(&[name, "--linux"]).refused(2, &["--linux", "verify"]);
    }
}

#[test]
fn an_unknown_benchmark_is_refused() {
    bench(&["speed"]).refused(2, &["speed"]);
}
