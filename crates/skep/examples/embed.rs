//! A host that embeds skep: loads the firewall of `examples/`, feeds it packets from two threads, changes its rules
//! while it runs, reads what it counted, gives a program a function of its own, and replaces programs while they run.
//! The book's guide shows this file piece by piece.
//!
//!     cargo run -p skep --example embed

use skep::abi::{MapDef, MapKind, RAW, XDP};
use skep::{Error, Linker, Module, Object, Packet, PacketInfo, ProgramOptions, Runtime, UpdateFlags};
use std::ops::ControlFlow;

const FIREWALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/firewall.bpf.o");

fn main() -> Result<(), Error> {
    let module = load()?;
    let before = run_on_two_threads(&module)?;
    block(&module, [10, 9, 0, 0], 16)?;
    let after = run_on_two_threads(&module)?;
    println!("dropped {before} packets before the rule and {after} after it");
    report(&module)?;
    refuse();
    println!("tenant {}", with_a_helper()?);
    replace()?;
    Ok(())
}

// ANCHOR: load
/// Opens the object, gives one of its variables another value, and loads all of it.
fn load() -> Result<Module, Error> {
    let object = Object::open(FIREWALL)?;
    let runtime = Runtime::builder()
        .cpus(8) // at most eight threads run programs at once
        .log(|program, message| eprintln!("{program} says: {message}"))
        .build()?;
    let linker: Linker<'_> = runtime.linker(&object);
    let module = linker
        .variable("drop_fragments", &1u32.to_ne_bytes()) // what the C source says is 0
        .max_entries("offenders", 4096)
        .load()?;
    for program in module.programs() {
        let times = program.load_times();
        println!("{}: verified in {:?}, compiled in {:?}", program.name(), times.verify, times.jit);
    }
    Ok(module)
}
// ANCHOR_END: load

// ANCHOR: threads
/// Runs the firewall from two threads at once; returns how many packets it dropped.
fn run_on_two_threads(module: &Module) -> Result<u64, Error> {
    let firewall = module.program("firewall").expect("the object has it");
    let drops = |source: [u8; 4]| -> Result<u64, Error> {
        // One packet for each thread; it is filled anew for every frame, and never allocates again.
        let mut packet = Packet::new(&[]);
        packet.info = PacketInfo { ingress_ifindex: 1, ..PacketInfo::default() };
        let mut drops = 0;
        for port in [53, 123, 443, 1900] {
            packet.set(&udp(source, port));
            let verdict = firewall.run(&mut packet)?;
            drops += u64::from(firewall.program_type().verdict(verdict) == Some("drop"));
        }
        Ok(drops)
    };
    std::thread::scope(|scope| {
        let one = scope.spawn(|| drops([10, 1, 0, 1]));
        let two = scope.spawn(|| drops([10, 9, 0, 1]));
        Ok(one.join().expect("no panics")? + two.join().expect("no panics")?)
    })
}
// ANCHOR_END: threads

// ANCHOR: maps
/// Adds a prefix to the firewall's list. Programs that run at this moment see the list before or after.
fn block(module: &Module, network: [u8; 4], bits: u32) -> Result<(), Error> {
    let blocked = module.map("blocked4").expect("the object has it");
    // `struct lpm_key4`: the prefix's length in native byte order, then the address.
    let key = [bits.to_ne_bytes(), network].concat();
    blocked.update(&key, &1u32.to_ne_bytes(), UpdateFlags::Any)?;
    Ok(())
}

/// Prints the firewall's counters.
fn report(module: &Module) -> Result<(), Error> {
    let verdicts = module.map("verdicts").expect("the object has it");
    for reason in 0..verdicts.def().max_entries {
        // A per-CPU map: one `struct tally { __u64 packets, bytes; }` for each virtual CPU, one after another.
        let values = verdicts.lookup(&reason.to_ne_bytes())?.expect("elements of arrays always exist");
        let packets: u64 = values.chunks_exact(16).map(|tally| word(&tally[..8])).sum();
        if packets > 0 {
            println!("reason {reason}: {packets} packets");
        }
    }
    let frames = module.variable("frames_seen")?;
    println!("all: {} frames", word(&frames));
    Ok(())
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}
// ANCHOR_END: maps

// ANCHOR: refusal
/// Tries to load a program that reads the packet without looking where it ends.
fn refuse() {
    let insns = skep::isa::assemble(
        "r2 = *(u32 *)(r1 + 0)    // data
         r0 = *(u8 *)(r2 + 12)
         exit",
    )
    .expect("the text is right, the program is not");
    let object = Object::from_insns("hasty", &XDP, insns);
    match object.verify("hasty", ProgramOptions::default()) {
        Ok(_) => println!("accepted"),
        Err(Error::Refused(refusal)) => {
            println!("class:       {}", refusal.code.name());
            println!("instruction: {} `{}`", refusal.slot, refusal.insn);
            println!("reason:      {}", refusal.reason);
            println!("in one line: {refusal}");
        }
        Err(error) => println!("{error}"),
    }
}
// ANCHOR_END: refusal

// ANCHOR: helper
/// A function that programs may call: the tenant that an IPv4 address belongs to. Its signature is its prototype:
/// programs must pass a number, and know of the result that it is at most 255.
fn tenant_of(address: u32) -> u8 {
    address.to_le_bytes()[0]
}

/// Runs a program of type `raw` that calls it.
fn with_a_helper() -> Result<u64, Error> {
    let runtime = Runtime::builder().function(1000, "tenant_of", tenant_of).build()?;
    let insns = skep::isa::assemble(
        "r1 = *(u32 *)(r1 + 0)    // the buffer's first four bytes
         call tenant_of#1000
         exit",
    )
    .expect("the text is right");
    let object = Object::from_insns("tenant", &RAW, insns);
    let module = runtime.linker(&object).buffer_len(4).load()?;
    module.programs()[0].run_raw(&mut [10, 0, 0, 7])
}
// ANCHOR_END: helper

/// An Ethernet frame with an empty UDP datagram to 10.0.0.1.
fn udp(source: [u8; 4], port: u16) -> [u8; 42] {
    let mut frame = [0; 42];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame[26..30].copy_from_slice(&source);
    frame[30..34].copy_from_slice(&[10, 0, 0, 1]);
    frame[34..36].copy_from_slice(&40_000u16.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&8u16.to_be_bytes());
    frame
}

// ANCHOR: replace
/// Replaces the target of a tail call and an attached program. Other threads may run both meanwhile.
fn replace() -> Result<(), Error> {
    let runtime = Runtime::new()?;
    let stages = MapDef::new("stages", MapKind::ProgArray, 4, 4, 8);
    let object = |name: &str, text: &str| {
        let insns = skep::isa::assemble(text).expect("the text is right");
        let bytes = skep::isa::encode_bytes(&insns).expect("it has a form in bytes");
        Object::from_bytecode_and_maps(name, &RAW, &bytes, vec![stages.clone()])
    };
    let first = runtime.load(&object("first", "r2 = map[0] ll\nr3 = 1\ncall 12\nr0 = 0\nexit")?)?;
    let array = first.program_array("stages").expect("the object defines it");
    let stage = |text: &str| Ok::<_, Error>(runtime.load(&object("stage", text)?)?.programs()[0].clone());

    let hook = runtime.hook();
    let link = hook.attach(&first.programs()[0])?;
    let run = || {
        let mut results = Vec::new();
        hook.run_raw(&mut [], |_, result| {
            results.push(result);
            ControlFlow::Continue(())
        })?;
        Ok::<_, Error>(results)
    };
    assert_eq!(run()?, [0]); // nothing at index 1: the tail call falls through
    array.set(1, &stage("r0 = 1\nexit")?)?; // by one store in the code of `first`
    assert_eq!(run()?, [1]);
    array.set(1, &stage("r0 = 2\nexit")?)?;
    runtime.synchronize()?; // nobody is in the old stage any more
    assert_eq!(run()?, [2]);
    link.replace(&stage("r0 = 3\nexit")?)?;
    assert_eq!(run()?, [3]);
    Ok(())
}
// ANCHOR_END: replace
