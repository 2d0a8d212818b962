//! What programs return and leave in packets and contexts is what Linux 6.12 answered to the same runs:
//! `tests/answers/*.answers`, in checking mode, in the interpreter and in the processor's JIT.

use crate::{Engine, Object, Packet, Program, Runtime};
use skep_abi::ProgramType;
use skep_interp::Regions;
use skep_verdicts::{Entry, Fields, Run, RunAnswer, Verdict, entries};
use std::path::Path;

/// A packet with the fields of the run, as Linux makes it: at the loopback device.
fn packet(run: &Run) -> Packet {
    let mut packet = Packet::new(&run.packet);
    let [mark, priority, cb @ .., tstamp, gso_segs, gso_size, hwtstamp] = run.fields;
    let info = &mut packet.info;
    (info.mark, info.priority, info.cb) = (mark as u32, priority as u32, cb.map(|word| word as u32));
    (info.tstamp, info.hwtstamp) = (tstamp, hwtstamp);
    (info.gso_segs, info.gso_size) = (gso_segs as u32, gso_size as u32);
    // The loopback device has no address that a packet could be for, and nothing came in there.
    (info.ifindex, info.pkt_type) = (1, 3);
    packet
}

/// What a run left; Linux counts the metadata before a packet as part of it.
fn left(packet: &Packet, result: u64) -> RunAnswer {
    let info = &packet.info;
    let [a, b, c, d, e] = info.cb.map(u64::from);
    let fields: Fields = [
        info.mark.into(),
        info.priority.into(),
        a,
        b,
        c,
        d,
        e,
        info.tstamp,
        info.gso_segs.into(),
        info.gso_size.into(),
        info.hwtstamp,
    ];
    RunAnswer { result: result as u32, packet: [packet.metadata(), packet.bytes()].concat(), fields }
}

/// skep's answers, one of each engine.
fn answers(program: &Program, entry: &Entry, run: &Run) -> Vec<(&'static str, String)> {
    let mut packet_checked = packet(run);
    let result = program.run_checked(&mut packet_checked, &mut [], Regions::DEFAULT_FUEL).unwrap();
    let result = result.unwrap_or_else(|violation| panic!("{}: {violation}", entry.name));
    let mut answers = vec![("checking", run.text(entry, &left(&packet_checked, result)))];
    for (name, engine) in [("interpreter", Engine::Interpreter), ("jit", Engine::Jit)] {
        let mut packet = packet(run);
        let result = program.run_with(engine, &mut packet).unwrap();
        answers.push((name, run.text(entry, &left(&packet, result))));
    }
    answers
}

#[test]
fn runs_answer_as_linux_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/answers");
    let runtime = Runtime::builder().privileged(true).build().unwrap();
    let (mut runs, mut differences, mut wrong) = (0, 0, Vec::new());
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for entry in entries(&text).unwrap_or_else(|trouble| panic!("{}: {trouble}", file.display())) {
            let name = &entry.name;
            let run = Run::of(&entry).unwrap().unwrap_or_else(|| panic!("{name}: no packet"));
            assert_eq!(entry.linux, Some(Verdict::Accept), "{name}: Linux ran no such program");
            let recorded = entry.answer.as_ref().unwrap_or_else(|| panic!("{name}: no answer of Linux's"));
            let expected = entry.differs.as_ref().unwrap_or(recorded);
            assert!(entry.differs.as_ref() != Some(recorded), "{name}: `differs:` says what Linux says");
            let insns = skep_verdicts::Program::of(&entry).unwrap().insns;
            let kind = ProgramType::from_name(&entry.section).unwrap();
            let loaded = runtime.linker(&Object::from_insns("case", kind, insns)).load();
            let module = match loaded {
                Ok(module) => module,
                Err(error) => {
                    wrong.push(format!("{name}: refused: {error}"));
                    continue;
                }
            };
            for (engine, answer) in answers(&module.programs()[0], &entry, &run) {
                if answer != *expected {
                    wrong.push(format!("{name}, {engine}:\n  skep  {answer}\n  Linux {expected}"));
                }
            }
            runs += 1;
            differences += usize::from(entry.differs.is_some());
        }
    }
    println!("{runs} runs, {differences} differ from Linux's for a reason");
    assert!(wrong.is_empty(), "{} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(runs > 0, "no runs");
}
