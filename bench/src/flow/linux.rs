//! The same objects in the running kernel.
//!
//! Another process asks it ([`crate::kernel`]), and loads few programs: those of either object once, the parser that
//! stores flows a second time without that, and one that returns at once. A time is that of a system call that runs a
//! program [`REPEAT`] times over a packet; entering the kernel and making its packet are in it, and in that of the
//! floor.

use super::packets::{Case, Flow, kinds};
use super::subject::{DISSECTED, Variant, floor};
use crate::Result;
use crate::kernel::{Answer, Map, Program};
use crate::timing::sorted;
use serde_json::{Value, json};
use skep::Object;
use skep::abi::MapDef;
use std::collections::BTreeMap;
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

/// Measures the kernel. The answer for the floor has no packet.
///
/// # Errors
///
/// bpf(2) may not be used, or the kernel finds another flow than the packet's.
pub(crate) fn measure() -> Result<Vec<Answer>> {
    let packets = kinds();
    let floor = Program::load(&floor(), "floor", &[])?;
    let mut floor_times = Vec::new();
    let dissectors = [(true, Dissector::new(true)?), (false, Dissector::new(false)?)];
    let mut answers = Vec::new();
    for map_update in [true, false] {
        for (_, dissector) in &dissectors {
            dissector.store(map_update)?;
            for packet in &packets {
                let checked = dissector.check(packet, map_update);
                checked.map_err(|error| format!("the kernel, {}: {error}", packet.name))?;
            }
        }
        let pairs = || packets.iter().flat_map(|packet| dissectors.iter().map(move |of| (packet, of)));
        let mut times = vec![Vec::new(); pairs().count()];
        for _ in 0..ROUNDS {
            floor_times.push(time(&floor, &packets[0])?);
            for ((packet, (_, dissector)), times) in pairs().zip(&mut times) {
                times.push(time(dissector.entry(map_update), packet)?);
            }
        }
        answers.extend(pairs().zip(times).map(|((packet, (tail_calls, _)), times)| {
            let variant = Variant { tail_calls: *tail_calls, map_update };
            (variant.key(packet.name), best_and_median(times))
        }));
    }
    answers.push((json!({"packet": null}), best_and_median(floor_times)));
    Ok(answers)
}

fn best_and_median(times: Vec<f64>) -> Value {
    let times = sorted(times);
    json!({"ns_linux": times[0], "ns_linux_median": times[times.len() / 2]})
}

fn time(program: &Program, packet: &Case) -> Result<f64> {
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

impl Dissector {
    fn new(tail_calls: bool) -> Result<Self> {
        let variant = Variant { tail_calls, map_update: true };
        let mut loader = Loader::new(variant.object()?)?;
        if !tail_calls {
            let entries = loader.both(variant.entry())?.map(Rc::new);
            return Ok(Self { flows: loader.take("flows")?, entries, last: None });
        }
        let entry = Rc::new(loader.load(variant.entry(), true)?);
        let last = loader.both(STORES)?;
        let mut programs = Vec::new();
        for name in SLOTS.iter().filter(|name| **name != STORES) {
            programs.push(loader.load(name, true)?);
        }
        let parsers = loader.take("parsers")?;
        // The array keeps the programs.
        (0..).zip(&programs).try_for_each(|(slot, program)| parsers.install(slot, program))?;
        let entries = [Rc::clone(&entry), entry];
        Ok(Self { flows: loader.take("flows")?, entries, last: Some((parsers, last)) })
    }

    /// From now on its flows are stored, or are not.
    fn store(&self, map_update: bool) -> Result<()> {
        let Some((parsers, last)) = &self.last else { return Ok(()) };
        parsers.install(SLOTS.len() as u32 - 1, &last[usize::from(!map_update)])
    }

    fn entry(&self, map_update: bool) -> &Program {
        &self.entries[usize::from(!map_update)]
    }

    /// Expects the kernel to find what skep must find.
    fn check(&self, packet: &Case, map_update: bool) -> Result<()> {
        let (result, _) = self.entry(map_update).run(&packet.frame, 1)?;
        let Some(Flow { key, value }) = packet.flow.filter(|_| result == DISSECTED) else {
            return Err(format!("it returns {}", result.cast_signed()).into());
        };
        let stored = if map_update { self.flows.lookup(&key)? } else { value.to_vec() };
        if stored == value { Ok(()) } else { Err(format!("it stores {stored:x?}").into()) }
    }
}

/// An object, and the kernel's maps for it.
struct Loader {
    object: Object,
    maps: BTreeMap<String, Map>,
    /// The maps of its constants, where flows are stored and where not.
    constants: [Map; 2],
}

impl Loader {
    fn new(object: Object) -> Result<Self> {
        let is_constant = |def: &&MapDef| def.frozen.is_some();
        let variables = object.maps().iter().find(is_constant).ok_or("the dissector has no constants")?;
        let constants = |map_update| {
            let map = Map::new(variables)?;
            map.update(&[0; 4], &Variant { tail_calls: true, map_update }.store())?;
            map.freeze()?;
            Ok::<_, crate::Error>(map)
        };
        let constants = [constants(true)?, constants(false)?];
        let others = object.maps().iter().filter(|def| !is_constant(def));
        let maps = others.map(|def| Ok((def.name.clone(), Map::new(def)?))).collect::<Result<_>>()?;
        Ok(Self { object, maps, constants })
    }

    fn load(&self, program: &str, map_update: bool) -> Result<Program> {
        let constants = &self.constants[usize::from(!map_update)];
        let defs = self.object.maps().iter();
        let maps: Vec<&Map> = defs.map(|def| self.maps.get(&def.name).unwrap_or(constants)).collect();
        Program::load(&self.object, program, &maps)
    }

    /// A program, where flows are stored and where not.
    fn both(&self, program: &str) -> Result<[Program; 2]> {
        Ok([self.load(program, true)?, self.load(program, false)?])
    }

    fn take(&mut self, name: &str) -> Result<Map> {
        Ok(self.maps.remove(name).ok_or_else(|| format!("the dissector has no map {name}"))?)
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
}
