//! The report of `skep-bench exec`.

use super::bench;

#[test]
fn exec_counts_the_machine_code_of_every_architecture() {
    let report = bench(&["exec", "--rounds", "1", "--no-interpreter", "--json"]).json();
    assert_eq!(report["arch"], std::env::consts::ARCH);
    let programs = report["rows"].as_array().unwrap().len();
    let architectures = report["architectures"].as_array().unwrap();
    assert_eq!(architectures.iter().map(|code| &code["arch"]).collect::<Vec<_>>(), ["x86_64", "aarch64"]);
    for code in architectures.iter().chain([&report]) {
        let bytes = code["bytes_per_insn"].as_f64().unwrap();
        let insns = code["native_insns_per_bpf_insn"].as_f64().unwrap();
        // What is promised of aarch64, and true of both.
        assert!((0.5..=1.25).contains(&insns), "{code}");
        // Instructions of aarch64 have four bytes, and few of x86-64 more than eight.
        assert!((2.0..=8.0).contains(&(bytes / insns)), "{code}");
    }
    for code in architectures {
        assert_eq!(code["native_insns"].as_array().unwrap().len(), programs, "{code}");
    }
    for row in report["rows"].as_array().unwrap() {
        assert!(row["native_insns"].as_u64().unwrap() <= row["code_bytes"].as_u64().unwrap(), "{row}");
        assert!(row["ns"]["skep"]["best"].as_f64().unwrap() > 0.0, "{row}");
    }
}
