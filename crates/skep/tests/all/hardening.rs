//! Hardened code computes the same results as other code.

#![allow(missing_docs)]

use std::path::Path;

use skep::{Object, Packet, Runtime};

fn example(name: &str) -> Object {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    Object::open(path).expect("an example")
}

/// Every combination of hardening options, and what is for programs of strangers.
fn runtimes() -> impl Iterator<Item = Runtime> {
    let strangers = std::iter::once_with(|| Runtime::builder().untrusted().build().expect("a runtime"));
    let hardened =
        [(false, false), (true, false), (false, true), (true, true)].into_iter().map(|(pads, signed)| {
            let mut options = skep::jit::Options::default();
            options.landing_pads = pads;
            options.signed_returns = signed;
            Runtime::builder().compile(options).build().expect("a runtime")
        });
    hardened.chain(strangers)
}

/// Frames of all lengths, some of which look like IP.
fn frames() -> Vec<Vec<u8>> {
    (0..300usize)
        .map(|len| {
            let mut frame: Vec<u8> = (0..len).map(|at| (at * 37 + len) as u8).collect();
            if len > 40 {
                frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
                frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
                frame[23] = [6, 17, 1][len % 3];
            }
            frame
        })
        .collect()
}

#[test]
fn verdicts_do_not_depend_on_hardening() {
    let object = example("firewall.bpf.o");
    let verdicts: Vec<Vec<u64>> = runtimes()
        .map(|runtime| {
            let module = runtime.load(&object).expect("loads");
            let firewall = module.program("firewall").expect("is there");
            frames().iter().map(|frame| firewall.run(&mut Packet::new(frame)).expect("runs")).collect()
        })
        .collect();
    assert!(verdicts.iter().all(|others| *others == verdicts[0]));
    assert!(verdicts[0].iter().any(|verdict| *verdict != verdicts[0][0]), "one verdict for all");
}

#[test]
fn only_code_with_landing_pads_is_checked_for_them() {
    for runtime in runtimes() {
        let plain = Runtime::builder().code(skep::text::Config::new().landing_pads(true)).build().unwrap();
        assert!(!plain.occupancy().landing_pads, "code without landing pads could not be run");
        let module = runtime.load(&example("hello.bpf.o")).expect("loads");
        let program = &module.programs()[0];
        program.run(&mut Packet::new(&[0; 64])).expect("runs");
    }
}
