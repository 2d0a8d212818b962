//! The name of a program's code for tools: `skep_prog_<tag>_<name>`, Linux's scheme with another prefix.

use skep::{Object, Runtime, text};

const FIREWALL: &[u8] = include_bytes!("../../../../examples/firewall.bpf.o");

#[test]
fn the_perf_map_names_code_by_tag_and_name_on_request() {
    let map = format!("/tmp/perf-{}.map", std::process::id());
    // An earlier process with the same number may have left one.
    let _ = std::fs::remove_file(&map);
    let object = Object::parse(FIREWALL).unwrap();
    let unseen = Runtime::new().unwrap().load(&object).unwrap();
    assert!(!std::path::Path::new(&map).exists(), "it was not requested");
    drop(unseen);

    let runtime = Runtime::builder().code(text::Config::new().perf_map(true)).build().unwrap();
    let module = runtime.load(&object).unwrap();
    let lines = std::fs::read_to_string(&map).unwrap();
    std::fs::remove_file(&map).unwrap();
    for program in module.programs() {
        let tag: String = program.verified().tag().iter().map(|byte| format!("{byte:02x}")).collect();
        let range = program.compiled().text().range();
        let line = format!("{:x} {:x} skep_prog_{tag}_{}", range.start, range.len(), program.name());
        assert!(lines.lines().any(|told| told == line), "{line} is not in\n{lines}");
    }
    assert_eq!(
        runtime.occupancy().backing,
        text::Backing::Procmem,
        "perf reads the map for anonymous memory only"
    );
}
