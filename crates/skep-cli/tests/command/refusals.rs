//! Refusals, with messages that name the place and the remedy.

use crate::{Scratch, object, root, skep};

const TINY: &str = "examples/captures/tiny.pcap";

fn run(object: &str) -> crate::Said {
    skep(&["run", object, "--pcap", TINY])
}

#[test]
fn what_is_not_elf() {
    let text = Scratch::new("text.o", b"int main(void) { return 0; }");
    run(text.path()).refused(1, &["ELF"]);
    let empty = Scratch::new("empty.o", b"");
    run(empty.path()).refused(1, &["ELF"]);
}

#[test]
fn an_elf_file_for_another_machine() {
    let me = env!("CARGO_BIN_EXE_skep");
    run(me).refused(1, &["BPF"]);
}

#[test]
fn what_is_not_there() {
    run("no/such/file.bpf.o").refused(1, &["no/such/file.bpf.o"]);
}

#[test]
fn an_object_truncated_at_any_byte() {
    let whole = std::fs::read(root().join("examples/hello.bpf.o")).unwrap();
    for cut in (0..whole.len()).step_by(whole.len() / 24) {
        let part = Scratch::new(&format!("cut-{cut}.o"), &whole[..cut]);
        let said = run(part.path());
        assert_eq!(said.status, Some(1), "cut at {cut}: {}{}", said.out, said.err);
        assert!(said.err.starts_with("skep: "), "cut at {cut}: {}", said.err);
        assert!(!said.err.contains("panicked"), "cut at {cut}: {}", said.err);
    }
}

#[test]
fn a_missing_program() {
    skep(&["run", "examples/firewall.bpf.o", "--prog", "nobody", "--pcap", TINY])
        .refused(1, &["no program \"nobody\"", "firewall"]);
}

#[test]
fn an_unknown_section() {
    run(&object("unknown_section")).refused(1, &["no_such_hook/here", "xdp"]);
}

#[test]
fn an_unknown_section_runs_under_a_given_type() {
    let said = skep(&["run", &object("unknown_section"), "--type", "xdp", "--pcap", TINY, "--json"]);
    assert_eq!(said.json()["verdicts"]["aborted"], 20);
}

#[test]
fn a_map_of_an_unknown_kind() {
    run(&object("unknown_map_kind")).refused(1, &["strange", "9999"]);
}

#[test]
fn a_map_of_a_kind_that_is_not_provided() {
    run(&object("kind_not_provided")).refused(1, &["inodes", "inode_storage"]);
}

#[test]
fn a_helper_that_does_not_exist() {
    run(&object("unknown_helper")).refused(1, &["9999"]);
}

#[test]
fn an_undefined_symbol() {
    run(&object("unresolved_symbol")).refused(1, &["defined_elsewhere"]);
}

#[test]
fn a_missing_null_check_with_its_line_and_remedy() {
    let said = run(&object("missing_null_check"));
    said.refused(1, &["careless", "missing_null_check.bpf.c:19", "NULL"]);
    let verdict = skep(&["verify", &object("missing_null_check"), "--json"]);
    assert_eq!(verdict.status, Some(1));
    let verdict = &serde_json::from_str::<serde_json::Value>(&verdict.out).unwrap()[0];
    assert_eq!(verdict["verdict"], "refused");
    assert_eq!(verdict["code"], "maybe-null");
    assert_eq!(verdict["line"], 19);
    assert!(verdict["insn"].is_u64());
    assert!(verdict["file"].as_str().unwrap().ends_with("missing_null_check.bpf.c"));
    assert!(verdict["source"].as_str().unwrap().contains("*count += 1"));
}

#[test]
fn a_packet_access_without_a_bounds_check() {
    let verdicts = skep(&["verify", &object("unchecked_packet")]);
    verdicts.refused(1, &["hasty", "data_end", "patient: accepted"]);
    skep(&["run", &object("unchecked_packet"), "--prog", "hasty", "--pcap", TINY]).refused(1, &["hasty"]);
    let said = skep(&["run", &object("unchecked_packet"), "--prog", "patient", "--pcap", TINY, "--json"]);
    assert_eq!(said.json()["packets"], 20);
}

#[test]
fn a_loop_without_an_end() {
    run(&object("endless")).refused(1, &["endless"]);
}

#[test]
fn a_map_beyond_the_memory_limit() {
    let args = ["run", &object("large_map"), "--pcap", TINY, "--map-memory", "1048576"];
    skep(&args).refused(1, &["large", "1048576"]);
    assert_eq!(skep(&["run", &object("large_map"), "--pcap", TINY, "--json"]).json()["packets"], 20);
}

#[test]
fn empty_or_truncated_captures() {
    let firewall = "examples/firewall.bpf.o";
    let empty = Scratch::new("empty.pcap", b"");
    skep(&["run", firewall, "--pcap", empty.path()]).refused(1, &["empty"]);
    let whole = std::fs::read(root().join(TINY)).unwrap();
    let header = Scratch::new("header.pcap", &whole[..24]);
    skep(&["run", firewall, "--pcap", header.path()]).refused(1, &["no packets"]);
    let text = Scratch::new("text.pcap", &b"no capture at all, only words ".repeat(10));
    skep(&["run", firewall, "--pcap", text.path()]).refused(1, &["neither pcap nor pcapng"]);
    let broken = Scratch::new("broken.pcap", &whole[..whole.len() - 3]);
    let said = skep(&["run", firewall, "--pcap", broken.path(), "--json"]);
    said.refused(1, &["cannot be read at packet 20"]);
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["packets"], 19, "the packets before the break were run and are reported");
    skep(&["run", firewall, "--pcap", "no/such.pcap"]).refused(1, &["no/such.pcap"]);
}

#[test]
fn wrong_usage_ends_with_status_2() {
    let firewall = "examples/firewall.bpf.o";
    skep(&[]).refused(2, &["Usage"]);
    skep(&["dance"]).refused(2, &["dance"]);
    skep(&["run", firewall]).refused(2, &["--pcap"]);
    skep(&["run", firewall, "--pcap", TINY, "--data-in", TINY]).refused(2, &["--data-in"]);
    skep(&["run", firewall, "--data-in", TINY, "--write", "x"]).refused(2, &["--write"]);
    skep(&["run", firewall, "--pcap", TINY, "--repeat", "0"]).refused(2, &["repeat"]);
    skep(&["run", firewall, "--pcap", TINY, "--type", "kprobe"]).refused(2, &["kprobe", "xdp"]);
    skep(&["run", "examples/raw.bpf.o", "--pcap", TINY]).refused(2, &["--data-in"]);
    skep(&["conformance", "zz"]).refused(2, &["memory", "zz"]);
}

/// Hints once named options that the command refuses, or one of two that serve.
#[test]
fn hints_name_the_options_that_serve_and_the_command_takes_them() {
    skep(&["run", "examples/firewall.bpf.o"]).refused(2, &["--pcap", "--data-in"]);
    run(&object("unknown_section")).refused(1, &["--type"]);
    let parts = "crates/skep/tests/objects/extensions/parts.bpf.o";
    skep(&["run", parts, "--prog", "sees_arguments", "--pcap", TINY]).refused(1, &["--btf"]);
    // That option is this command's too.
    let told = skep(&["run", "examples/firewall.bpf.o", "--pcap", TINY, "--btf", "no/such"]);
    told.refused(1, &["no/such"]);
    let types = "crates/skep-verifier/verdicts/linux.btf";
    skep(&["run", "examples/firewall.bpf.o", "--pcap", TINY, "--btf", types, "--json"]).json();
}

#[test]
fn bench_points_to_cargo_xtask_bench() {
    for arguments in [&["bench"][..], &["bench", "exec", "--quick"], &["bench", "--help"]] {
        skep(arguments).refused(2, &["cargo xtask bench"]);
    }
    assert!(!skep(&["--help"]).out.contains("bench"));
}

#[test]
fn a_library_for_a_program_that_loads_none() {
    skep(&["exec", "--front", "sideways", "true"]).refused(2, &["sideways", "auto", "notify", "preload"]);
    // A program for this processor without the header that names a dynamic linker.
    let mut bytes = std::fs::read(env!("CARGO_BIN_EXE_skep")).unwrap();
    bytes.truncate(64);
    bytes[56..58].fill(0);
    let program = Scratch::new("static", &bytes);
    let words = ["cannot load the library", program.path(), "linked statically", "--front notify"];
    skep(&["exec", "--front", "preload", program.path()]).refused(1, &words);
    let script = Scratch::new("script", b"#!/no/such/interpreter");
    skep(&["exec", "--front", "notify", script.path()]).refused(1, &["cannot start"]);
}

#[test]
fn help_and_version_are_not_errors() {
    assert_eq!(skep(&["--help"]).status, Some(0));
    assert_eq!(skep(&["run", "--help"]).status, Some(0));
    assert!(skep(&["--version"]).out.starts_with("skep "));
}

#[test]
fn an_initial_element_larger_than_its_template() {
    let words = ["map outer.inner", "max_entries differs", "4 entries", "1000000 entries", "BPF_F_INNER_MAP"];
    run(&object("inner_too_large")).refused(1, &words);
}
