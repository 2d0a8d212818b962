//! The examples in the interpreter's checking mode: every register and stack slot is compared with the states of the
//! verifier's walk before every instruction, over the packets of the capture beside them.

use crate::image::{ALIGNMENT, Buffer, Image, Input};
use crate::{Context, Engine, Error, Object, Packet, Program, Runtime};
use skep_abi::{ArgKind, HelperProto, MapDef, MapKind, RAW, RetKind, RunEnv, SkbContext, XdpContext};
use skep_interp::{Regions, Rights, Violation};
use std::path::{Path, PathBuf};

/// Packets of the capture that each program runs on: every so many.
const EVERY: usize = 8;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// The packets of a capture in the classic format, little-endian.
fn packets(capture: &[u8]) -> Vec<&[u8]> {
    let mut packets = Vec::new();
    let mut rest = &capture[24..];
    while let Some((head, behind)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let (packet, after) = behind.split_at(len);
        packets.push(packet);
        rest = after;
    }
    packets
}

/// Runs a program in checking mode, as [`Program::run_with`] and [`Program::run_raw`] run it.
fn check(program: &Program, bytes: &[u8]) -> u64 {
    check_on(program, bytes, &[0x5a; 256])
}

/// The same; a program that is given a buffer finds these there.
pub(crate) fn check_on(program: &Program, bytes: &[u8], given: &[u8]) -> u64 {
    let name = program.name();
    let recorded = program.verified().recorded().expect("tests keep the states");
    assert!(recorded.is_complete(), "{name}: {} states", recorded.states());
    let mut packet = Packet::new(bytes);
    let mut room = vec![0x5a; program.buffer_len() + 8];
    let start = room.as_ptr().align_offset(8);
    let buffer = &mut room[start..start + program.buffer_len()];
    buffer.copy_from_slice(&given[..buffer.len()]);
    let result = program
        .run_checked(&mut packet, buffer, Regions::DEFAULT_FUEL)
        .expect("the examples can be interpreted");
    result.unwrap_or_else(|violation| panic!("{name} over {bytes:02x?}: {violation}"))
}

impl Program {
    /// The length of the buffer that it is given; 0 where it is given a packet.
    pub(crate) fn buffer_len(&self) -> usize {
        match self.image().input {
            Input::Buffer(buffer) => buffer.len as usize,
            Input::Xdp
            | Input::Skb
            | Input::Context
            | Input::Host
            | Input::Arguments
            | Input::Netfilter
            | Input::Shown
            | Input::Inside => 0,
        }
    }

    /// Runs it in checking mode, as [`Program::run_with`] runs it on the packet, or [`Program::run_raw_with`] on the
    /// buffer. That has the length that the program was verified for, and begins at a multiple of 8. `fuel` is the most
    /// instructions that are executed.
    pub(crate) fn run_checked(
        &self,
        packet: &mut Packet,
        buffer: &mut [u8],
        fuel: u64,
    ) -> Result<Result<u64, Violation>, Error> {
        self.run_checked_on(packet, buffer, None, None, fuel)
    }

    /// [`Program::run_checked`] as [`Program::run_context_with`] runs it.
    pub(crate) fn run_context_checked(&self, context: &mut Context) -> Result<Result<u64, Violation>, Error> {
        self.run_checked_on(&mut Packet::new(&[]), &mut [], Some(context), None, Regions::DEFAULT_FUEL)
    }

    /// The same on what a host lends: its address, and what may be accessed.
    pub(crate) fn run_lent_checked(
        &self,
        address: u64,
        lent: &crate::host::Lending<'_>,
    ) -> Result<Result<u64, Violation>, Error> {
        let given = Some((address, lent));
        self.run_checked_on(&mut Packet::new(&[]), &mut [], None, given, Regions::DEFAULT_FUEL)
    }

    fn run_checked_on(
        &self,
        packet: &mut Packet,
        buffer: &mut [u8],
        given: Option<&mut Context>,
        lent: Option<(u64, &crate::host::Lending<'_>)>,
        fuel: u64,
    ) -> Result<Result<u64, Violation>, Error> {
        let (image, shared): (&Image, _) = (self.image(), self.shared());
        let variants = self.program_type().variants;
        let helpers = |id| variants.iter().find(|proto| proto.id == id).or_else(|| shared.proto(id));
        let objects = |at, bytes| {
            if crate::socket::live::has(at, bytes) {
                return Some(Rights::READ);
            }
            let allowed = shared.dispatch.objects.allows(at, bytes)?;
            Some(Rights { read: allowed.read, write: allowed.write })
        };
        let mut regions = Regions::new(&helpers).with_fuel(fuel).with_objects(&objects);
        let interpreter = shared.interpreter(image)?;
        if image.locks && skep_maps::lock::is_held() {
            return Err(Error::LockHeld);
        }
        let mut env = RunEnv {
            host: &raw const **shared as u64,
            program: &raw const *image as u64,
            ..RunEnv::default()
        };
        let (_normal, _sleepable);
        if image.sleepable {
            let section = shared.domain.enter_sleepable()?;
            (env.cpu, env.sleepable) = (section.number(), 1);
            _sleepable = section;
        } else {
            let section = shared.domain.enter()?;
            env.cpu = section.number();
            _normal = section;
        }
        let result = match image.input {
            Input::Xdp => {
                let mut context: XdpContext = packet.xdp();
                (context.packet, env.run) = packet.begin();
                env.context = &raw mut context as u64;
                // SAFETY: as in `Program::run_with`.
                let result = unsafe { interpreter.run_checked(env.context, 0, &mut env, &regions) };
                packet.take_xdp(&context);
                result
            }
            Input::Skb => {
                let mut context: SkbContext = packet.skb(self.program_type().from_network);
                (context.packet, env.run) = packet.begin();
                env.context = &raw mut context as u64;
                // SAFETY: as above.
                let result = unsafe { interpreter.run_checked(env.context, 0, &mut env, &regions) };
                packet.take_skb(&context);
                result
            }
            Input::Buffer(Buffer { len, .. }) => {
                assert!(buffer.len() == len as usize && buffer.as_ptr().addr().is_multiple_of(ALIGNMENT));
                // SAFETY: the buffer has the length that the program was verified for, and is aligned.
                unsafe { interpreter.run_checked(buffer.as_mut_ptr() as u64, len.into(), &mut env, &regions) }
            }
            Input::Netfilter => {
                let mut hook = crate::netfilter::NativeHook::new(packet);
                (hook.skb.packet, env.run) = packet.begin();
                env.context = hook.words();
                regions.allow(env.context, 16, Rights::READ);
                // SAFETY: as in `Program::run_with`.
                unsafe { interpreter.run_checked(env.context, 0, &mut env, &regions) }
            }
            Input::Arguments | Input::Shown => {
                let words = buffer.as_mut_ptr() as u64;
                env.context = words;
                regions.allow(words, buffer.len() as u64, Rights::READ);
                // SAFETY: the caller gives as many words as the program was verified for.
                unsafe { interpreter.run_checked(words, 0, &mut env, &regions) }
            }
            Input::Host => {
                let (address, lent) = lent.expect("a host's context");
                env.context = address;
                lent.allow(self.program_type(), &mut regions);
                // SAFETY: as in `TypedProgram::run_with`.
                unsafe { interpreter.run_checked(address, 0, &mut env, &regions) }
            }
            Input::Inside => panic!("it runs inside of another program"),
            Input::Context => {
                let context = given.expect("a context");
                let (address, effects) = context.begin(self)?;
                (env.context, env.run) = (address, effects);
                for (start, bytes, writable) in context.memory() {
                    regions.allow(start, bytes, Rights { read: true, write: writable });
                }
                if let Some((start, bytes)) = context.record() {
                    regions.allow_record(start, bytes);
                }
                // SAFETY: as in `Program::run_context_with`.
                let result = unsafe { interpreter.run_checked(address, 0, &mut env, &regions) };
                context.end();
                result
            }
        };
        if env.sections > 0 {
            shared.leave_sections(&env);
        }
        Ok(result)
    }
}

#[test]
fn the_examples_are_in_every_state_what_the_verifier_says() {
    let capture = std::fs::read(examples().join("traffic.pcap")).expect("the capture is committed");
    let packets = packets(&capture);
    assert!(packets.len() > 5_000, "{}", packets.len());
    let mut programs = 0;
    for entry in std::fs::read_dir(examples()).expect("the folder is there") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "o") {
            continue;
        }
        let object = Object::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let runtime = Runtime::builder().log(|_, _| ()).build().expect("a runtime");
        let module = runtime.load(&object).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for program in module.programs() {
            programs += 1;
            for (number, packet) in packets.iter().step_by(EVERY).enumerate() {
                // What compiled code left in the maps is what the next run finds; or they are as they are.
                if number % 2 == 0 && program.verified().entry() == skep_abi::Entry::Context {
                    program.run_with(Engine::Jit, &mut Packet::new(packet)).expect("a run");
                }
                check(program, packet);
            }
        }
    }
    assert!(programs >= 9, "{programs}");
}

#[test]
fn iterators_are_in_every_state_what_the_verifier_says() {
    let bytes: &[u8] = include_bytes!("../tests/objects/iterators/iterators.bpf.o");
    let object = Object::parse(bytes).expect("an object");
    let runtime = Runtime::new().expect("a runtime");
    for (first, end, stop) in [(0, 12i32, 5i32), (-3, 4, -1), (5, 4, 0), (7, 7, 0)] {
        let linker = runtime.linker(&object);
        let values = [("first", first), ("end", end), ("stop", stop)];
        let linker = values
            .into_iter()
            .fold(linker, |linker, (name, value)| linker.variable(name, &i32::to_ne_bytes(value)));
        let module = linker.load().expect("it loads");
        assert_eq!(module.programs().len(), 6);
        for program in module.programs() {
            assert_eq!(check(program, &[0; 64]), 2, "{}", program.name());
        }
    }
}

#[test]
fn objects_that_programs_allocate_are_in_every_state_what_the_verifier_says() {
    let bytes: &[u8] = include_bytes!("../tests/objects/owners/owners.bpf.o");
    let object = Object::parse(bytes).expect("an object");
    let runtime = Runtime::builder().cpus(4).build().expect("a runtime");
    runtime.trace_objects();
    let module = runtime.load(&object).expect("it loads");
    let shelves = module.map("shelves").expect("a map");
    let empty = vec![0; shelves.host_value_size()];
    let mut done = 0;
    for round in 0..40 {
        if round % 5 == 0 {
            shelves.update(&[0; 4], &empty, skep_maps::UpdateFlags::Any).expect("an update");
        }
        for (number, program) in module.programs().iter().enumerate() {
            // What compiled code made is what the next run finds; or the other way round.
            match (round + number) % 3 {
                0 => done += program.run_with(Engine::Jit, &mut Packet::new(&[0; 64])).expect("a run"),
                _ => done += check(program, &[0; 64]),
            }
        }
    }
    assert!(done > 300, "most programs do something: {done}");
    drop(module.maps().to_vec());
    drop(module);
    assert_eq!(runtime.objects(), 0);
}

#[test]
fn cpu_masks_are_in_every_state_what_the_verifier_says() {
    let bytes: &[u8] = include_bytes!("../tests/objects/masks/masks.bpf.o");
    let object = Object::parse(bytes).expect("an object");
    let runtime = Runtime::builder().cpus(4).function(1000, "interrupt", |_: crate::function::Caller<'_>| 0);
    let runtime = runtime.build().expect("a runtime");
    runtime.trace_objects();
    let module = runtime.load(&object).expect("it loads");
    let mut ran = 0;
    for round in 0..8 {
        for program in module.programs().iter().filter(|program| program.program_type().name == "raw") {
            // `take` and `make` are among them, so masks come and go.
            let _ = match round % 3 {
                0 => program.run_raw_with(Engine::Jit, &mut []).expect("a run"),
                _ => check(program, &[]),
            };
            ran += 1;
        }
    }
    assert!(ran > 200 && runtime.objects() > 0, "{ran} runs, {} objects", runtime.objects());
    drop(module);
    assert_eq!(runtime.objects(), 0);
}

#[test]
fn a_map_given_for_two_of_a_programs_is_each_of_them() {
    let text = "
        r1 = map[1] ll
        r2 = func[each] ll
        r3 = 0
        r4 = 0
        call 164
        r0 = 0
        exit
  each: r0 = *(u32 *)(r2 + 0)
        r0 = 0
        exit";
    let bytes = skep_isa::encode_bytes(&skep_isa::assemble(text).expect("a program")).expect("its bytes");
    let maps = ["a", "b"].map(|name| MapDef::new(name, MapKind::Array, 4, 8, 2));
    let object = Object::from_bytecode_and_maps("goes", &RAW, &bytes, maps).expect("an object");
    let runtime = Runtime::new().expect("a runtime");
    let given = runtime.load(&object).expect("it loads").maps()[0].clone();
    let module = runtime.linker(&object).map("a", given.clone()).map("b", given).load().expect("it loads");
    check(&module.programs()[0], &[]);
}

#[test]
fn records_from_the_host_are_read_and_written() {
    let text = "
        r1 = map[0] ll
        r2 = func[each] ll
        r3 = 0
        r4 = 0
        call 209
        exit
  each: r2 = 0
        r3 = 8
        call 203
        if r0 == 0 goto end
        r1 = *(u64 *)(r0 + 0)
        r1 += 1
        *(u64 *)(r0 + 0) = r1
        r0 = 0
   end: exit";
    let bytes = skep_isa::encode_bytes(&skep_isa::assemble(text).expect("a program")).expect("its bytes");
    let requests = MapDef::new("requests", MapKind::UserRingbuf, 0, 0, 4096);
    let object = Object::from_bytecode_and_maps("drains", &RAW, &bytes, [requests]).expect("an object");
    let module = Runtime::new().expect("a runtime").load(&object).expect("it loads");
    let mut host = skep_maps::UserRingBuffer::new(&module.maps()[0]).expect("no other");
    for len in [8, 3, 100] {
        host.reserve(len).expect("there is room").submit();
    }
    assert_eq!(check(&module.programs()[0], &[]), 3);
}

#[test]
fn what_is_found_in_a_map_of_maps_is_looked_up_in() {
    let inner = MapDef::new("inner", MapKind::Array, 4, 8, 1);
    let outer = |kind| MapDef { inner: Some(Box::new(inner.clone())), ..MapDef::new("outer", kind, 4, 4, 4) };
    // The outer map at the buffer's number, and the inner one at 0; in what is found there, 1 is added.
    let text = "
        r2 = r1
        r1 = map[0] ll
        call 1
        if r0 == 0 goto out
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        r1 = r0
        call 1
        if r0 == 0 goto out
        r1 = *(u64 *)(r0 + 0)
        r1 += 1
        *(u64 *)(r0 + 0) = r1
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        r1 = map[1] ll
        call 1
        if r0 == 0 goto out
        r1 = *(u64 *)(r0 + 0)
   out: r0 = 0
        exit";
    let bytes = skep_isa::encode_bytes(&skep_isa::assemble(text).expect("a program")).expect("its bytes");
    for kind in [MapKind::ArrayOfMaps, MapKind::HashOfMaps] {
        let object = Object::from_bytecode_and_maps("finds", &RAW, &bytes, vec![outer(kind), inner.clone()])
            .expect("an object");
        let runtime = Runtime::new().expect("a runtime");
        let load = || runtime.linker(&object).buffer_len(4).load().expect("it loads");
        let (module, other) = (load(), load());
        // Its own, and one that it does not know.
        let maps = [&module.maps()[1], &other.maps()[1]];
        for (index, map) in maps.into_iter().enumerate() {
            match kind {
                MapKind::ArrayOfMaps => module.map_array("outer").expect("it has one").set(index as u32, map),
                _ => module.map_hash("outer").expect("it has one").set(&(index as u32).to_ne_bytes(), map),
            }
            .expect("it fits");
        }
        for index in [0, 1, 2] {
            check_on(&module.programs()[0], &[], &u32::to_ne_bytes(index));
        }
        let one = Some(1u64.to_ne_bytes().to_vec());
        assert_eq!(maps.map(|map| map.lookup(&[0; 4])), [Ok(one.clone()), Ok(one)]);
    }
}

/// An object of the host at the address that it is given.
unsafe extern "C" fn object_at(address: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    address
}

#[test]
fn objects_of_the_host_may_lead_anywhere() {
    let bytes: &[u8] = include_bytes!("../../skep-verifier/verdicts/linux.btf");
    let types = std::sync::Arc::new(skep_btf::Btf::parse(bytes).expect("types"));
    let id = types.find("task_struct", skep_btf::Kind::Struct).expect("the structure");
    let at = |name: &str| {
        let found = types.members(id).expect("members").find(|member| member.name() == Ok(name));
        found.expect("a member").bit_offset / 8
    };
    let (parent, pid) = (at("real_parent"), at("pid"));
    // What the parent's parent is, and the number of that one; copies of both are spilled and compared.
    let text = format!(
        "r1 = *(u64 *)(r1 + 0)
         call 2000
         r6 = *(u64 *)(r0 + {parent})
         r7 = *(u64 *)(r6 + {parent})
         *(u64 *)(r10 - 8) = r7
         r1 = *(s32 *)(r7 + {pid})
         r7 = *(u64 *)(r10 - 8)
         r0 = *(u32 *)(r7 + {pid})
         if r6 == 0 goto +1
         r0 += r1
         exit"
    );
    let bytes = skep_isa::encode_bytes(&skep_isa::assemble(&text).expect("a program")).expect("its bytes");
    let mut object = Object::from_bytecode("walks", &RAW, &bytes).expect("an object");
    object.set_host_types(types.clone());
    let (any, none) = (ArgKind::Anything, ArgKind::None);
    let ret = RetKind::Object { of: "task_struct", maybe_null: false };
    let proto = HelperProto::new(2000, "object_at", [any, none, none, none, none], ret);
    // SAFETY: what it returns is read by loads that may fault.
    let runtime = unsafe { Runtime::builder().helper(proto, object_at) }.build().expect("a runtime");
    let module = runtime.linker(&object).buffer_len(8).load().expect("it loads");
    let program = &module.programs()[0];
    for wrong in [0, 1, 4096, 0xdead_beef_dead_beef, 0xffff_8000_0000_0000, u64::MAX] {
        let mut task = vec![0u64; 4096];
        task[parent as usize / 8] = wrong;
        check_on(program, &[], &(task.as_ptr().expose_provenance() as u64).to_ne_bytes());
        // An object that is gone itself.
        if wrong != 0 {
            check_on(program, &[], &wrong.to_ne_bytes());
        }
    }
}

#[test]
fn programs_over_contexts_are_in_every_state_what_the_verifier_says() {
    let programs = [
        (
            "sk_msg",
            "r2 = *(u64 *)(r1 + 72)\nr0 = *(u32 *)(r2 + 16)\nr3 = *(u64 *)(r1 + 0)\nr4 = *(u64 *)(r1 + 8)\nr5 = r3\nr5 += 4\nif r5 > r4 goto +1\n*(u32 *)(r3 + 0) = 7\nexit",
        ),
        ("flow_dissector", "r2 = *(u64 *)(r1 + 144)\n*(u16 *)(r2 + 2) = 5\nr0 = *(u16 *)(r2 + 2)\nexit"),
        ("syscall", "*(u64 *)(r1 + 8) = 5\nr0 = *(u32 *)(r1 + 8)\nexit"),
        ("kprobe", "r0 = *(u64 *)(r1 + 16)\nexit"),
        ("raw_tracepoint.w", "r1 = *(u64 *)(r1 + 0)\nr0 = *(u64 *)(r1 + 8)\nexit"),
        ("cgroup/connect4", "*(u32 *)(r1 + 4) = 5\nr0 = *(u32 *)(r1 + 24)\nr0 &= 1\nexit"),
    ];
    let any = std::net::SocketAddr::from(([0, 0, 0, 0], 1));
    let socket = std::sync::Arc::new(crate::world::Socket::bound(any));
    for (name, text) in programs {
        let kind = skep_abi::ProgramType::from_name(name).expect("a type");
        let object = Object::from_insns("program", kind, skep_isa::assemble(text).expect("a program"));
        let module = Runtime::new().expect("a runtime").load(&object).expect("it loads");
        let program = &module.programs()[0];
        let mut context = Context::of(program).expect("a context");
        // Types without the field need no socket.
        let _ = context.set_socket("sk", Some(socket.clone()));
        let _ = context.set_data(&[1; 16]);
        let checked = program.run_context_checked(&mut context).expect("it can be interpreted");
        let checked = checked.unwrap_or_else(|violation| panic!("{name}: {violation}"));
        assert_eq!(program.run_context(&mut context).expect("a run"), checked, "{name}");
    }
}

#[test]
fn functions_of_tables_are_in_every_state_what_the_verifier_says() {
    let objects = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/objects/ops/");
    let host = Object::open(format!("{objects}host.bpf.o")).expect("the host's types");
    let mut plug_in = Object::open(format!("{objects}policy.bpf.o")).expect("a plug-in");
    plug_in.set_host_types(std::sync::Arc::clone(host.types().expect("types")));
    let module = Runtime::new().expect("a runtime").load(&plug_in).expect("it is loaded");
    // struct request: 12 bytes, of an owner whose quota is 5.
    let owner = [1u64, 5];
    let request = [0u64, 12, owner.as_ptr().expose_provenance() as u64];
    let request = request.as_ptr().expose_provenance() as u64;
    for (name, args, expected) in [
        ("admit", [request, 12, 0], 1),
        ("admit", [request, 11, 0], 0),
        ("busy", [0; 3], 7),
        ("busy", [request, 0, 0], 12),
    ] {
        let program = module.program(name).expect("it is there");
        let mut words = args.map(u64::to_ne_bytes);
        let words = words.as_flattened_mut();
        let result =
            program.run_checked(&mut Packet::new(&[]), words, Regions::DEFAULT_FUEL).expect("it runs");
        assert_eq!(result.unwrap_or_else(|violation| panic!("{name}: {violation}")), expected, "{name}");
    }
}
