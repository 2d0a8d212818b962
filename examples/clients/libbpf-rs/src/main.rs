// SPDX-License-Identifier: MIT OR Apache-2.0

//! Attaches the programs of `port.bpf.o` to port1, sends frames out of port0, and prints what the programs report.

use anyhow::{Context, Result, anyhow, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, PerfBufferBuilder, ProgramInput};
use libbpf_rs::{ProgramMut, RingBufferBuilder, TC_INGRESS, TcHookBuilder};
use nix::net::if_::if_nametoindex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Protocols and lengths of the frames.
const FRAMES: [(u16, u32); 3] = [(0x0800, 60), (0x0806, 42), (0x86dd, 100)];

/// `BPF_F_TEST_XDP_LIVE_FRAMES`: the frames of a test run go where the program sends them.
const LIVE_FRAMES: u32 = 2;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("which object?")?;
    let mut open = ObjectBuilder::default().open_file(path)?;
    let mut constants = open.maps_mut().find(|map| map.name() == "port.rodata").context("no constants")?;
    constants.initial_value_mut().context("no constants")?.copy_from_slice(&0x0806_u16.to_ne_bytes());
    let object = open.load()?;

    let port1 = if_nametoindex("port1")?;
    let _xdp = program(&object, "arrive")?.attach_xdp(port1 as i32)?;
    let pass = program(&object, "pass")?;
    let mut hooks = TcHookBuilder::new(pass.as_fd());
    let mut ingress = hooks.ifindex(port1 as i32).replace(true).handle(1).priority(1).hook(TC_INGRESS);
    ingress.create()?;
    let mut ingress = ingress.attach()?;

    let (records, samples) = (map(&object, "records")?, map(&object, "samples")?);
    let (arrived, passed) = (Cell::new(0), Cell::new(0));
    let mut ring = RingBufferBuilder::new();
    ring.add(&records, |record| {
        report("xdp", record, &arrived);
        0 // go on
    })?;
    let ring = ring.build()?;
    let perf = PerfBufferBuilder::new(&samples).pages(1);
    let perf = perf.sample_cb(|_cpu, sample: &[u8]| report("tc", sample, &passed)).build()?;

    send(&program(&object, "send")?)?;
    let started = Instant::now();
    while arrived.get() < 3 || passed.get() < 2 {
        ring.poll(Duration::from_millis(100))?;
        perf.poll(Duration::from_millis(100))?;
        ensure!(started.elapsed() < Duration::from_secs(5), "no record in five seconds");
    }

    let counts = map(&object, "counts")?;
    let counts = counts.keys().map(|key| Ok((number(&key, 0)?, counts.lookup(&key, MapFlags::ANY)?)));
    for (protocol, value) in counts.collect::<Result<BTreeMap<_, _>>>()? {
        let value = value.context("an element is gone")?;
        println!("{protocol:04x}: {} arrived, {} passed", number(&value, 0)?, number(&value, 8)?);
    }
    ingress.detach()?;
    Ok(())
}

fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>> {
    object.progs_mut().find(|program| program.name() == name).ok_or_else(|| anyhow!("no program {name}"))
}

fn map(object: &Object, name: &str) -> Result<MapHandle> {
    let map = object.maps().find(|map| map.name() == name).with_context(|| format!("no map {name}"))?;
    Ok(MapHandle::try_from(&map)?)
}

/// Sends the frames out of port0: a test run of a program that transmits them, with live frames.
fn send(program: &ProgramMut) -> Result<()> {
    let port0 = if_nametoindex("port0")?;
    for (protocol, length) in FRAMES {
        let mut frame = vec![0; length as usize];
        frame[12..14].copy_from_slice(&protocol.to_be_bytes());
        // `struct xdp_md`: data, its end, metadata, incoming device, its queue, outgoing device.
        let mut context = [0, length, 0, port0, 0, 0].map(u32::to_ne_bytes).concat();
        program.test_run(ProgramInput {
            data_in: Some(&frame),
            context_in: Some(&mut context),
            flags: LIVE_FRAMES,
            repeat: 1,
            ..ProgramInput::default()
        })?;
    }
    Ok(())
}

/// Prints a record: length, protocol, and whether it was refused.
fn report(place: &str, record: &[u8], seen: &Cell<usize>) {
    let read = || Some((record.first_chunk()?, number(record, 4).ok()?, number(record, 6).ok()?));
    match read() {
        Some((length, protocol, refused)) => {
            let refused = if refused == 0 { "" } else { ", refused" };
            println!("{place}: {} bytes of {protocol:04x}{refused}", u32::from_ne_bytes(*length));
        }
        None => println!("{place}: a short record"),
    }
    seen.set(seen.get() + 1);
}

/// The 16 bits at an offset.
fn number(bytes: &[u8], at: usize) -> Result<u16> {
    let two = bytes.get(at..at + 2).context("too few bytes")?;
    Ok(u16::from_ne_bytes(two.try_into()?))
}
