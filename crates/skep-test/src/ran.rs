//! A run of a program: on a packet with metadata, a buffer or a context, and what it leaves.

use crate::fixture::Fixture;
use crate::node::{Node, unknown};
use crate::table::{Input, Step};
use skep::abi::Context as Takes;
use skep::{Context, Engine, Event, Packet, PacketInfo, Program, Redirect};

/// What a step's last run has left.
#[derive(Default)]
pub(crate) struct Ran {
    pub(crate) ran: bool,
    pub(crate) result: u64,
    pub(crate) verdict: Option<&'static str>,
    /// Names of verdicts of the program's type.
    pub(crate) names: Vec<&'static str>,
    pub(crate) before: Vec<u8>,
    pub(crate) after: Vec<u8>,
    pub(crate) is_packet: bool,
    pub(crate) info: PacketInfo,
    /// Of all runs of the step.
    pub(crate) events: Vec<Event>,
    pub(crate) redirect: Option<String>,
    pub(crate) context: Option<Context>,
}

pub(crate) fn run_step(
    fixture: &mut Fixture,
    name: &str,
    step: &Step,
    engine: Engine,
) -> Result<Ran, String> {
    if !step.after.is_zero() {
        fixture.world.step(step.after).ok_or_else(|| "the clock of the world did not move".to_owned())?;
    }
    let mut ran = Ran::default();
    if matches!(step.input, Input::Nothing) {
        return Ok(ran);
    }
    for _ in 0..step.repeat {
        let program = fixture.module.program(name).ok_or_else(|| format!("no program {name}"))?;
        run_once(program, step, engine, &mut ran).map_err(|text| format!("{name}: {text}"))?;
        fixture.drain();
    }
    Ok(ran)
}

fn run_once(program: &Program, step: &Step, engine: Engine, ran: &mut Ran) -> Result<(), String> {
    let text = |error: skep::Error| error.to_string();
    let kind = program.program_type();
    match &step.input {
        Input::Nothing => return Ok(()),
        Input::Packet(bytes) => {
            let mut packet = Packet::new(bytes);
            for (field, node) in &step.metadata {
                set_info(&mut packet.info, field, node)?;
            }
            let outcome = program.outcome_with(engine, &mut packet).map_err(text)?;
            ran.result = outcome.result & 0xffff_ffff;
            ran.events.extend(outcome.events);
            ran.redirect = outcome.redirect.map(|to| redirect(&to, &outcome.devices));
            (ran.before, ran.after) = (bytes.clone(), packet.bytes().to_vec());
            (ran.is_packet, ran.info) = (true, packet.info);
        }
        Input::Buffer(bytes) => {
            let mut buffer = bytes.clone();
            ran.result = match kind.context {
                Takes::Buffer => program.run_raw_with(engine, &mut buffer).map_err(text)?,
                _ => {
                    let mut context = Context::of(program).map_err(text)?;
                    context.set_bytes(bytes).map_err(text)?;
                    let result = program.run_context_with(engine, &mut context).map_err(text)?;
                    buffer = context.bytes().to_vec();
                    result & 0xffff_ffff
                }
            };
            (ran.before, ran.after) = (bytes.clone(), buffer);
        }
        Input::Context(fields) => {
            let mut context = Context::of(program).map_err(text)?;
            for (name, node) in fields {
                let number = node.json().map_err(|error| error.to_string())?;
                let number = number.as_u64().ok_or(()).or_else(|()| node.number());
                let number = number.map_err(|error| error.to_string())?;
                context.set(name, number).map_err(|error| node.error(error.to_string()).to_string())?;
            }
            ran.result = program.run_context_with(engine, &mut context).map_err(text)? & 0xffff_ffff;
            ran.context = Some(context);
        }
    }
    ran.ran = true;
    ran.verdict = kind.verdict(ran.result);
    ran.names = kind.verdicts.iter().map(|(_, name)| *name).collect();
    Ok(())
}

/// Where a packet is redirected, as tables say it.
fn redirect(to: &Redirect, devices: &[u32]) -> String {
    match to {
        Redirect::Device { index, ingress: false } => format!("device {index}"),
        Redirect::Device { index, ingress: true } => format!("device {index}, ingress"),
        Redirect::Peer { index } => format!("peer of device {index}"),
        Redirect::Neighbour { index, next_hop: Some(hop) } => format!("device {index} via {hop}"),
        Redirect::Neighbour { index, next_hop: None } => format!("device {index} by routes"),
        Redirect::Devices => {
            format!("devices {}", devices.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
        }
        Redirect::Cpu { cpu } => format!("cpu {cpu}"),
        Redirect::Stream { cookie, .. } => format!("stream {cookie}"),
        Redirect::Socket { socket } => format!("socket {socket}"),
        other => format!("{other:?}"),
    }
}

/// Fields of a packet's metadata by name.
pub(crate) const INFO: [&str; 12] = [
    "ingress_ifindex",
    "ifindex",
    "rx_queue_index",
    "tstamp",
    "pkt_type",
    "mark",
    "priority",
    "queue_mapping",
    "tc_index",
    "tc_classid",
    "hash",
    "napi_id",
];

pub(crate) fn info_field<'a>(info: &'a mut PacketInfo, name: &str) -> Option<&'a mut u32> {
    Some(match name {
        "ingress_ifindex" => &mut info.ingress_ifindex,
        "ifindex" => &mut info.ifindex,
        "rx_queue_index" => &mut info.rx_queue_index,
        "pkt_type" => &mut info.pkt_type,
        "mark" => &mut info.mark,
        "priority" => &mut info.priority,
        "queue_mapping" => &mut info.queue_mapping,
        "tc_index" => &mut info.tc_index,
        "tc_classid" => &mut info.tc_classid,
        "hash" => &mut info.hash,
        "napi_id" => &mut info.napi_id,
        _ => return None,
    })
}

fn set_info(info: &mut PacketInfo, name: &str, node: &Node) -> Result<(), String> {
    let number = node.number().map_err(|error| error.to_string())?;
    if name == "tstamp" {
        info.tstamp = number;
        return Ok(());
    }
    let field =
        info_field(info, name).ok_or_else(|| node.error(unknown("metadata", name, &INFO)).to_string())?;
    *field = u32::try_from(number)
        .map_err(|_| node.error(format!("{number} has more than 32 bits")).to_string())?;
    Ok(())
}
