//! What programs return and leave in packets and contexts is what Linux 6.12 answered to the same runs:
//! `tests/answers/*.answers`, in checking mode, in the interpreter and in the processor's JIT.
//!
//! Where an entry says that skep differs, its reason is one of [`REASONS`], and explains how: a difference that does
//! not follow from its reason is a defect of skep.

use crate::world::{Cgroup, Device, Machine, Route, RouteKind, Socket, TABLE_LOCAL, Task};
use crate::{Context, Engine, Object, Packet, Program, Runtime, World};
use skep_abi::{MapDef, Section};
use skep_interp::Regions;
use skep_isa::{CallTarget, Insn};
use skep_verdicts::{Entry, Fields, Run, RunAnswer, Verdict, entries};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The bytes of a packet before its network header.
const ETHERNET: usize = 14;

/// How skep answers, which an entry is tried with.
type Answers<'a> = dyn Fn(&Run) -> Vec<(&'static str, String)> + 'a;

/// A reason for another answer than Linux's, and whether it explains the difference: the run, Linux's answer, skep's.
type Reason = (&'static str, fn(&Run, &str, &str, &Answers<'_>) -> bool);

const REASONS: &[Reason] = &[
    ("skep folds the difference to 16 bits, as Linux does since 6.13.", |_, linux, skep, _| {
        let fold = |text: &str| text.parse().map(|sum: u64| sum % 0xffff);
        skep.parse::<u16>().is_ok() && fold(linux) == fold(skep)
    }),
    (
        "Linux runs a socket filter in tests from the network header on; skep from the Ethernet header, as on a packet socket.",
        // On a packet without an Ethernet header, which a packet socket without it has, they agree.
        |run, linux, _, skep| {
            let bare = Run { packet: run.packet[ETHERNET..].to_vec(), ..run.clone() };
            skep(&bare).iter().all(|(_, answer)| answer == linux)
        },
    ),
    (
        "The buffer may be stack that the program has not written, so skep clears it where the helper fails; Linux leaves it.",
        // The programs add the first four bytes, all ones before, to the error.
        |_, linux, skep, _| {
            let number = |text: &str| text.parse::<u32>();
            let cleared = [0xff, 0xffff, 0xff_ffff, u32::MAX];
            number(linux)
                .is_ok_and(|linux| cleared.iter().any(|ones| number(skep) == Ok(linux.wrapping_sub(*ones))))
        },
    ),
    (
        "After the text skep fills the buffer with zeroes, since it may be stack that the program has not written.",
        |_, linux, skep, _| {
            let number = |text: &str| text.parse::<u32>().unwrap();
            [0xff00_0000, 0xffff_0000, 0xffff_ff00].contains(&number(linux).wrapping_sub(number(skep)))
        },
    ),
    (
        "In Linux the length overflows 31 bits and counts as short; skep says that the packet is too long.",
        |_, linux, skep, _| (linux, skep) == ("65536", "65543"),
    ),
    (
        "A namespace's number is its own in skep; in Linux it has one only if somebody gave it one, and nobody did.",
        |_, linux, skep, _| (linux, skep) == ("0", "1"),
    ),
    (
        "The IPv4 address of an IPv6 socket is a number of Linux's own, 127.0.0.6 for ::1; in skep it is 0.",
        |_, linux, skep, _| (linux, skep) == ("100663423", "0"),
    ),
];

/// Helpers that no entry calls, and why.
const NOT_ASKED: &[(&str, &[u32])] = &[
    ("Its result is random.", &[7]),
    ("Linux has no test run for iterators.", &[126, 127]),
    ("It makes system calls, which are compared with Linux's by `tests/calls`.", &[166, 167, 168, 179]),
    (
        "Linux has no test run for its types of programs.",
        &[
            49, 52, 53, 57, 59, 60, 61, 62, 63, 64, 70, 71, 72, 82, 90, 91, 101, 102, 103, 104, 122, 142,
            143, 144, 173, 174, 186, 187,
        ],
    ),
    ("It takes a variable of the kernel for each CPU.", &[153, 154]),
    (
        "It takes objects of structures that the program declares, which a run of bare instructions has not.",
        &[194],
    ),
];

/// The machine that the runs were recorded on: the loopback device, with sockets.
fn machine() -> Machine {
    let mut machine = Machine::new();
    let mut loopback = Device::new("lo").index(1).mtu(65536);
    for address in ["127.0.0.1/8", "::1/128"] {
        loopback = loopback.address(address.parse().unwrap());
    }
    machine.add_device(loopback).unwrap();
    // All of the loopback device's network is local, and nothing else is routed.
    machine.retain_routes(|route| route.table == TABLE_LOCAL);
    let mut all = Route::new("127.0.0.0/8".parse().unwrap(), 1);
    (all.table, all.kind) = (TABLE_LOCAL, RouteKind::Local);
    machine.add_route(all).unwrap();
    machine.cgroups.insert(1, Cgroup { id: 1, path: "/".to_owned(), ..Cgroup::default() });
    let mut task = Task::default();
    (task.pid, task.tgid, task.cgroup, task.address) = (1, 1, 1, 0xffff_8880_0000_0000);
    task.comm = "init".to_owned();
    // Nobody knows the inode of its namespace.
    task.pid_namespace = Some((0, u64::MAX));
    machine.task = Some(task);
    for ip in ["127.0.0.1", "[::1]"] {
        let at = |port| format!("{ip}:{port}").parse().unwrap();
        machine.add_socket(Socket::listening(at(8080))).unwrap();
        machine.add_socket(Socket::bound(at(5353))).unwrap();
    }
    machine
}

/// A packet with the fields of the run, as Linux makes it: at the loopback device.
fn packet(run: &Run, program_is_xdp: bool) -> Packet {
    let mut packet = Packet::new(&run.packet);
    let [mark, priority, cb @ .., tstamp, gso_segs, gso_size, hwtstamp] = run.fields;
    let info = &mut packet.info;
    (info.mark, info.priority, info.cb) = (mark as u32, priority as u32, cb.map(|word| word as u32));
    (info.tstamp, info.hwtstamp) = (tstamp, hwtstamp);
    (info.gso_segs, info.gso_size) = (gso_segs as u32, gso_size as u32);
    // The loopback device has no address that a packet could be for, and nothing came in there.
    (info.ifindex, info.pkt_type) = (1, 3);
    if program_is_xdp {
        info.ingress_ifindex = 1;
    } else {
        // A socket of no protocol that belongs to the root group.
        let mut socket = Socket::bound("0.0.0.0:0".parse().unwrap());
        (socket.cgroup, socket.cookie) = (1, 1);
        packet.set_socket(Some(Arc::new(socket)));
    }
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

/// The maps of an entry, with their templates.
fn maps(entry: &Entry) -> Vec<MapDef> {
    let defs = entry.maps.iter().map(|map| {
        let inner = entry.maps.iter().find(|other| Some(&other.def.name) == map.inner.as_ref());
        let inner = inner.map(|inner| Box::new(inner.def.clone()));
        MapDef { inner, extra: map.extra, ..map.def.clone() }
    });
    defs.collect()
}

/// The program of an entry in a runtime of its own, with maps as Linux had them: empty.
fn load(entry: &Entry) -> Result<Program, crate::Error> {
    let program = skep_verdicts::Program::of(entry).unwrap();
    let mut insns = program.insns;
    for insn in &mut insns {
        if let Insn::Call { target: CallTarget::Kfunc { id, .. } } = insn {
            let name = &program.symbols[*id as usize];
            *id = skep_abi::own_kfunc_number(name).unwrap_or_else(|| panic!("{name}")) as i32;
        }
    }
    let kind = Section::parse(&entry.section).unwrap().kind;
    let bytes = skep_isa::encode_bytes(&insns).unwrap();
    let object = Object::from_bytecode_and_maps("case", kind, &bytes, maps(entry))?;
    let runtime = Runtime::builder().privileged(true).cpus(1).world(&World::new(machine())).build()?;
    runtime.trace_objects();
    Ok(runtime.linker(&object).load()?.programs()[0].clone())
}

/// One run: on a packet, or on a context that is bytes or a structure.
fn answer(program: &Program, entry: &Entry, run: &Run, engine: Option<Engine>) -> String {
    let checked = |result: Result<u64, _>| {
        result.unwrap_or_else(|violation: skep_interp::Violation| panic!("{}: {violation}", entry.name))
    };
    let Ok(mut context) = Context::of(program) else {
        let mut packet = packet(run, program.program_type().name == "xdp");
        let result = match engine {
            Some(engine) => program.run_with(engine, &mut packet).unwrap(),
            None => checked(program.run_checked(&mut packet, &mut [], Regions::DEFAULT_FUEL).unwrap()),
        };
        return run.text(entry, &left(&packet, result));
    };
    match program.program_type().context {
        skep_abi::Context::Bytes { .. } => context.set_bytes(&run.bytes).unwrap(),
        _ => fill(&mut context, run),
    }
    let result = match engine {
        Some(engine) => program.run_context_with(engine, &mut context).unwrap(),
        None => checked(program.run_context_checked(&mut context).unwrap()),
    };
    let packet = match program.program_type().name {
        "flow_dissector" => context.flow_keys().to_vec(),
        _ => run.packet.clone(),
    };
    run.text(entry, &RunAnswer { result: result as u32, packet, fields: run.fields })
}

/// A context that is a structure: the packet of a flow dissector, or a look-up's addresses (`struct bpf_sk_lookup`).
fn fill(context: &mut Context, run: &Run) {
    if context.program_type().name == "flow_dissector" {
        let keys = context.flow_keys_mut();
        // Both headers begin after the Ethernet header, whose type is known.
        (keys[0], keys[2]) = (ETHERNET as u8, ETHERNET as u8);
        keys[10..12].copy_from_slice(&run.packet[12..14]);
        return context.set_data(&run.packet).unwrap();
    }
    let fields = [
        ("family", 8),
        ("protocol", 12),
        ("remote_ip4", 16),
        ("remote_port", 36),
        ("local_ip4", 40),
        ("local_port", 60),
        ("ingress_ifindex", 64),
    ];
    for (name, at) in fields {
        let word = run.bytes.get(at..at + 4).map_or([0; 4], |word| word.try_into().unwrap());
        context.set(name, u32::from_le_bytes(word).into()).unwrap();
    }
}

/// skep's answers, one of each engine, each of them with new maps.
fn answers(entry: &Entry, run: &Run) -> Result<Vec<(&'static str, String)>, crate::Error> {
    let engines =
        [("checking", None), ("interpreter", Some(Engine::Interpreter)), ("jit", Some(Engine::Jit))];
    let answers =
        engines.map(|(name, engine)| load(entry).map(|program| (name, answer(&program, entry, run, engine))));
    answers.into_iter().collect()
}

/// The files of entries, or only the one that `SKEP_ANSWERS` names.
fn files() -> Vec<PathBuf> {
    if let Some(file) = std::env::var_os("SKEP_ANSWERS") {
        return vec![file.into()];
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/answers");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_helper_has_an_answer_of_linux_or_a_reason_to_have_none() {
    let mut asked = BTreeSet::new();
    for file in files() {
        for entry in entries(&std::fs::read_to_string(&file).unwrap()).unwrap() {
            let insns = skep_verdicts::Program::of(&entry).unwrap().insns;
            asked.extend(insns.iter().filter_map(|insn| match insn {
                Insn::Call { target: CallTarget::Helper(id) } => Some(*id),
                _ => None,
            }));
        }
    }
    let excused: BTreeSet<u32> = NOT_ASKED.iter().flat_map(|(_, ids)| *ids).copied().collect();
    let provided: BTreeSet<u32> = crate::helpers::PROVIDED.iter().map(|(id, _)| *id).collect();
    let missing: Vec<_> = provided.difference(&asked).filter(|id| !excused.contains(id)).collect();
    assert!(missing.is_empty(), "record answers of these helpers, or say why not: {missing:?}");
    let idle: Vec<_> = excused.intersection(&asked).collect();
    assert!(idle.is_empty(), "these have answers: {idle:?}");
}

#[test]
fn runs_answer_as_linux_does() {
    let (mut runs, mut differences, mut wrong) = (0, 0, Vec::new());
    // Three runtimes for each: an emulator takes a minute for a hundred of them.
    let every = if skep_testkit::is_emulated() { 16 } else { 1 };
    for file in files() {
        let text = std::fs::read_to_string(&file).unwrap();
        let all = entries(&text).unwrap_or_else(|trouble| panic!("{}: {trouble}", file.display()));
        for entry in all.into_iter().step_by(every) {
            let name = &entry.name;
            let run = Run::of(&entry).unwrap().unwrap_or_else(|| panic!("{name}: no packet"));
            assert_eq!(entry.linux, Some(Verdict::Accept), "{name}: Linux ran no such program");
            let recorded = entry.answer.as_ref().unwrap_or_else(|| panic!("{name}: no answer of Linux's"));
            let expected = entry.differs.as_ref().unwrap_or(recorded);
            assert!(entry.differs.as_ref() != Some(recorded), "{name}: `differs:` says what Linux says");
            if let (Some(differs), Some(why)) = (&entry.differs, &entry.why) {
                let reason = REASONS.iter().find(|(reason, _)| reason == why);
                let (_, explains) = reason.unwrap_or_else(|| panic!("{name}: an unknown reason: {why}"));
                let on = |run: &Run| answers(&entry, run).unwrap();
                assert!(explains(&run, recorded, differs, &on), "{name}: the reason does not explain this");
            }
            match answers(&entry, &run) {
                Ok(answers) => wrong.extend(answers.iter().filter(|(_, answer)| answer != expected).map(
                    |(engine, answer)| format!("{name}, {engine}:\n  skep  {answer}\n  Linux {expected}"),
                )),
                Err(error) => wrong.push(format!("{name}: refused: {error}")),
            }
            runs += 1;
            differences += usize::from(entry.differs.is_some());
        }
    }
    println!("{runs} runs, {differences} differ from Linux's for a reason");
    assert!(wrong.is_empty(), "{} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(runs > 0, "no runs");
}
