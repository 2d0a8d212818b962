// SPDX-License-Identifier: MIT OR Apache-2.0

//! Attaches the programs of `port.bpf.o` to port1, sends frames out of port0, and prints what the programs report.

use anyhow::{Context, Result, ensure};
use aya::maps::{HashMap, RingBuf};
use aya::programs::{SchedClassifier, TcAttachType, TestRun, TestRunAttrs, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use mio::{Events, Interest, Poll, Token, unix::SourceFd};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Protocols and lengths of the frames.
const FRAMES: [(u16, u32); 3] = [(0x0800, 60), (0x0806, 42), (0x86dd, 100)];

fn main() -> Result<()> {
    let object = std::env::args().nth(1).context("which object?")?;
    let mut ebpf = EbpfLoader::new().override_global("refused", &0x0806_u16, true).load_file(object)?;

    let arrive: &mut Xdp = ebpf.program_mut("arrive").context("arrive")?.try_into()?;
    arrive.load()?;
    arrive.attach("port1", XdpMode::default())?;
    let pass: &mut SchedClassifier = ebpf.program_mut("pass").context("pass")?.try_into()?;
    pass.load()?;
    pass.attach("port1", TcAttachType::Ingress)?;

    let mut records = RingBuf::try_from(ebpf.take_map("records").context("records")?)?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut SourceFd(&records.as_raw_fd()), Token(0), Interest::READABLE)?;
    send(&mut ebpf)?;

    let (mut events, mut seen) = (Events::with_capacity(1), 0);
    while seen < FRAMES.len() {
        poll.poll(&mut events, Some(Duration::from_secs(5)))?;
        ensure!(!events.is_empty(), "no record in five seconds");
        while let Some(record) = records.next() {
            report(&record)?;
            seen += 1;
        }
    }

    let counts: HashMap<_, u16, [u64; 2]> = HashMap::try_from(ebpf.map("counts").context("counts")?)?;
    for (protocol, [arrived, passed]) in counts.iter().collect::<Result<BTreeMap<_, _>, _>>()? {
        println!("{protocol:04x}: {arrived} arrived, {passed} passed");
    }
    Ok(())
}

/// Sends the frames out of port0: a test run of a program that transmits them, with live frames.
fn send(ebpf: &mut Ebpf) -> Result<()> {
    let port0 = nix::net::if_::if_nametoindex("port0")?;
    let send: &mut Xdp = ebpf.program_mut("send").context("send")?.try_into()?;
    send.load()?;
    for (protocol, length) in FRAMES {
        let mut frame = vec![0; length as usize];
        frame[12..14].copy_from_slice(&protocol.to_be_bytes());
        // `struct xdp_md`: data, its end, metadata, incoming device, its queue, outgoing device.
        let context = [0, length, 0, port0, 0, 0].map(u32::to_ne_bytes).concat();
        send.test_run(TestRunOptions {
            data_in: Some(&frame),
            ctx_in: Some(&context),
            attrs: TestRunAttrs::new().xdp_live_frames(0),
            ..TestRunOptions::new()
        })?;
    }
    Ok(())
}

/// Prints a record: length, protocol, and whether it was refused.
fn report(record: &[u8]) -> Result<()> {
    let number = |at: usize| Some(u16::from_ne_bytes(record.get(at..at + 2)?.try_into().ok()?));
    let length = record.first_chunk().map(|length| u32::from_ne_bytes(*length)).context("a short record")?;
    let protocol = number(4).context("a short record")?;
    let refused = if number(6).context("a short record")? == 0 { "" } else { ", refused" };
    println!("xdp: {length} bytes of {protocol:04x}{refused}");
    Ok(())
}
