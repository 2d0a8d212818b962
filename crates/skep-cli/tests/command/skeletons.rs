//! `skep gen skeleton`: what it prints is committed beside the object, and compiled by
//! `crates/skep/tests/all/skeleton.rs` and by a C host of `crates/skep-capi`.

use crate::{root, skep};

const OBJECT: &str = "crates/skep/tests/objects/typed/typed.bpf.o";

#[test]
fn the_committed_skeletons_are_what_the_command_prints() {
    for (language, name) in [("--rust", "typed.skel.rs"), ("--c", "typed.skel.h")] {
        let said = skep(&["gen", "skeleton", language, OBJECT]);
        assert_eq!(said.status, Some(0), "{}", said.err);
        let committed =
            std::fs::read_to_string(root().join("crates/skep/tests/objects/typed").join(name)).unwrap();
        assert!(
            said.out == committed,
            "{name} differs: write what `skep gen skeleton {language} {OBJECT}` prints to it"
        );
    }
}

#[test]
fn every_example_has_a_skeleton_and_a_language_must_be_chosen() {
    for entry in std::fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".bpf.o") {
            for language in ["--rust", "--c"] {
                let said = skep(&["gen", "skeleton", language, path.to_str().unwrap()]);
                assert!(said.status == Some(0) && said.out.len() > 500, "{path:?}: {}", said.err);
            }
        }
    }
    skep(&["gen", "skeleton", OBJECT]).refused(2, &["--rust"]);
    skep(&["gen", "skeleton", "--c", "examples/traffic.pcap"]).refused(1, &[]);
}
