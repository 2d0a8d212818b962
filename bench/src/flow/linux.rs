//! The same objects in the running kernel.
//!
//! Another process asks it ([`crate::kernel`]), and loads few programs: those of either object once, the parser that
//! stores flows a second time without that, and one that returns at once. A time is that of a system call that runs a
//! program [`REPEAT`] times over a packet; entering the kernel and making its packet are in it, and in that of the
//! floor.

use super::packets::{Case, Flow, kinds};
use super::subject::{DISSECTED, Variant};
use crate::kernel::{Map, Program};
use serde::{Deserialize, Serialize};
use skep::abi::MapDef;
use skep::isa::{AluOp, Insn, Operand, Reg, Width};
use skep::{Object, ProgramOptions};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

/// Runs for each system call.
const REPEAT: u32 = 2_000;
/// Turns of each packet and variant.
const ROUNDS: usize = 300;
/// The parsers in the order of their slots, and the one that stores flows.
const SLOTS: [&str; 9] = [
    "parse_ethernet",
    "parse_vlan",
    "parse_mpls",
    "parse_ipv4",
    "parse_ipv6",
    "parse_options",
    "parse_fragment",
    "parse_gre",
    STORES,
];
const STORES: &str = "parse_transport";

/// The kernel's time for a packet, or for a program that returns at once: nanoseconds of the best and of the median
/// round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Linux {
    pub(super) best: f64,
    pub(super) median: f64,
}

/// The kernel's times: of each packet in each variant, and of its floor.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answers {
    pub(super) floor: Option<Linux>,
    /// A packet, whether by tail calls, and whether with the map update.
    rows: Vec<(String, bool, bool, Linux)>,
}

impl Answers {
    /// The time of a packet.
    pub(super) fn of(&self, packet: &str, variant: Variant) -> Option<Linux> {
        let Variant { tail_calls, map_update } = variant;
        let wanted =
            |row: &&(String, bool, bool, Linux)| (&*row.0, row.1, row.2) == (packet, tail_calls, map_update);
        self.rows.iter().find(wanted).map(|row| row.3)
    }
}

/// Measures the kernel.
///
/// # Errors
///
/// bpf(2) may not be used, or the kernel finds another flow than the packet's.
pub(crate) fn measure() -> Result<Answers, String> {
    let failed = |error: io::Error| format!("the kernel: {error}");
    let packets = kinds();
    let floor = Program::load(&floor(), &[]).map_err(failed)?;
    let mut floor_times = Vec::new();
    let [tail_calls, calls] = [true, false].map(|tail_calls| Dissector::new(tail_calls).map_err(failed));
    let (tail_calls, calls) = (tail_calls?, calls?);
    let mut rows = Vec::new();
    for map_update in [true, false] {
        tail_calls.store(map_update).map_err(failed)?;
        calls.store(map_update).map_err(failed)?;
        let dissectors = [&tail_calls, &calls];
        for (dissector, packet) in
            dissectors.iter().flat_map(|of| packets.iter().map(move |packet| (of, packet)))
        {
            dissector.check(packet, map_update)?;
        }
        let mut times = vec![Vec::new(); packets.len() * dissectors.len()];
        for _ in 0..ROUNDS {
            floor_times.push(time(&floor, &packets[0]).map_err(failed)?);
            let pairs = packets.iter().flat_map(|packet| dissectors.iter().map(move |of| (of, packet)));
            for ((dissector, packet), times) in pairs.zip(&mut times) {
                times.push(time(dissector.entry(map_update), packet).map_err(failed)?);
            }
        }
        let pairs = packets.iter().flat_map(|packet| [true, false].map(|tail_calls| (packet, tail_calls)));
        rows.extend(pairs.zip(times).map(|((packet, tail_calls), times)| {
            (packet.name.to_owned(), tail_calls, map_update, best_and_median(times))
        }));
    }
    Ok(Answers { floor: Some(best_and_median(floor_times)), rows })
}

/// A program that returns at once.
pub(super) fn floor() -> [Insn; 2] {
    let src = Operand::Imm(DISSECTED.cast_signed());
    [Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: Reg::R0, src }, Insn::Exit]
}

fn best_and_median(mut times: Vec<f64>) -> Linux {
    times.sort_by(f64::total_cmp);
    Linux { best: times[0], median: times[times.len() / 2] }
}

fn time(program: &Program, packet: &Case) -> io::Result<f64> {
    let (_, elapsed) = program.run(&packet.frame, REPEAT)?;
    Ok(elapsed.as_nanos() as f64 / f64::from(REPEAT))
}

/// A dissector in the kernel.
struct Dissector {
    flows: Map,
    /// The program that packets are given to, where flows are stored and where not: with tail calls it is one.
    entries: [Rc<Program>; 2],
    /// The array of parsers with its last parser in both ways.
    last: Option<(Map, [Program; 2])>,
}

/// An object, and the kernel's maps for it.
struct Loader {
    object: Object,
    maps: BTreeMap<String, Map>,
    /// The maps of its constants, where flows are stored and where not.
    constants: [Map; 2],
}

impl Dissector {
    fn new(tail_calls: bool) -> io::Result<Self> {
        let variant = Variant { tail_calls, map_update: true };
        let mut loader = Loader::new(variant.object().map_err(io::Error::other)?)?;
        if !tail_calls {
            let [storing, other] = loader.both(variant.entry())?.map(Rc::new);
            return Ok(Self { flows: loader.take("flows")?, entries: [storing, other], last: None });
        }
        let entry = Rc::new(loader.load(variant.entry(), true)?);
        for (slot, name) in (0..).zip(SLOTS).filter(|(_, name)| *name != STORES) {
            // The array keeps it.
            let parser = loader.load(name, true)?;
            loader.map("parsers")?.install(slot, &parser)?;
        }
        let last = loader.both(STORES)?;
        let last = Some((loader.take("parsers")?, last));
        Ok(Self { flows: loader.take("flows")?, entries: [Rc::clone(&entry), entry], last })
    }

    /// From now on its flows are stored, or are not.
    fn store(&self, map_update: bool) -> io::Result<()> {
        let Some((parsers, last)) = &self.last else { return Ok(()) };
        let slot = SLOTS.len() as u32 - 1;
        parsers.install(slot, &last[usize::from(!map_update)])
    }

    fn entry(&self, map_update: bool) -> &Program {
        &self.entries[usize::from(!map_update)]
    }

    /// Expects the kernel to find what skep must find.
    fn check(&self, packet: &Case, map_update: bool) -> Result<(), String> {
        let failed = |what: &dyn std::fmt::Display| format!("the kernel, {}: {what}", packet.name);
        let (result, _) = self.entry(map_update).run(&packet.frame, 1).map_err(|error| failed(&error))?;
        let Some(Flow { key, value }) = packet.flow.filter(|_| result == DISSECTED) else {
            return Err(failed(&format!("it returns {}", result.cast_signed())));
        };
        if !map_update {
            return Ok(());
        }
        let stored = self.flows.lookup(&key).map_err(|error| failed(&error))?;
        if stored == value { Ok(()) } else { Err(failed(&format!("it stores {stored:x?}"))) }
    }
}

impl Loader {
    fn new(object: Object) -> io::Result<Self> {
        let is_constant = |def: &&MapDef| def.frozen.is_some();
        let variables = object.maps().iter().find(is_constant).cloned();
        let variables = variables.ok_or_else(|| io::Error::other("the dissector has no constants"))?;
        let constants = |map_update| {
            let map = Map::new(&variables)?;
            map.update(&[0; 4], &Variant { tail_calls: true, map_update }.store())?;
            map.freeze()?;
            Ok::<_, io::Error>(map)
        };
        let constants = [constants(true)?, constants(false)?];
        let others = object.maps().iter().filter(|def| !is_constant(def));
        let maps = others.map(|def| Ok((def.name.clone(), Map::new(def)?))).collect::<io::Result<_>>()?;
        Ok(Self { object, maps, constants })
    }

    fn load(&self, program: &str, map_update: bool) -> io::Result<Program> {
        let linked = self.object.linked(program, ProgramOptions::default()).map_err(io::Error::other)?;
        let constants = &self.constants[usize::from(!map_update)];
        let defs = self.object.maps().iter();
        let maps: Vec<&Map> = defs.map(|def| self.maps.get(&def.name).unwrap_or(constants)).collect();
        Program::load(&linked.insns, &maps)
    }

    /// A program, where flows are stored and where not.
    fn both(&self, program: &str) -> io::Result<[Program; 2]> {
        Ok([self.load(program, true)?, self.load(program, false)?])
    }

    fn map(&self, name: &str) -> io::Result<&Map> {
        self.maps.get(name).ok_or_else(|| io::Error::other(format!("the dissector has no map {name}")))
    }

    fn take(&mut self, name: &str) -> io::Result<Map> {
        self.maps.remove(name).ok_or_else(|| io::Error::other(format!("the dissector has no map {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::subject::VARIANTS;
    use super::*;

    #[test]
    fn the_parsers_are_all_programs_but_the_entry_in_the_order_of_their_slots() {
        let variant = VARIANTS[0];
        let object = variant.object().unwrap();
        let parsers: Vec<_> = object.programs().into_iter().filter(|name| *name != variant.entry()).collect();
        assert_eq!(parsers, SLOTS);
        let array = object.maps().iter().find(|map| map.name == "parsers").unwrap();
        assert_eq!(array.max_entries as usize, SLOTS.len());
    }

    #[test]
    fn the_objects_have_no_constant_but_the_one_that_is_set() {
        for variant in VARIANTS {
            let object = variant.object().unwrap();
            let constants: Vec<_> = object.maps().iter().filter_map(|map| map.frozen.as_deref()).collect();
            assert_eq!(constants, [1u32.to_ne_bytes()]);
        }
    }

    #[test]
    fn a_time_is_found_by_its_packet_and_variant() {
        let text =
            r#"{"floor":{"best":20,"median":21},"rows":[["vlan",true,false,{"best":41.5,"median":43}]]}"#;
        let answers: Answers = serde_json::from_str(text).unwrap();
        assert_eq!(answers.floor, Some(Linux { best: 20.0, median: 21.0 }));
        assert_eq!(answers.of("vlan", VARIANTS[1]), Some(Linux { best: 41.5, median: 43.0 }));
        assert_eq!(answers.of("vlan", VARIANTS[0]), None);
    }
}
