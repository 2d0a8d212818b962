//! Maps and programs of the kernel; they are gone with their descriptors.

use crate::Result;
use skep::abi::MapDef;
use skep::isa::{Imm64, Insn, encode_bytes};
use skep::{Object, ProgramOptions};
use skep_testkit::bpf::{self, ElementAttr, Load, MapAttr, commands};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// `BPF_PROG_TYPE_SOCKET_FILTER`: may return any number.
const SOCKET_FILTER: u32 = 1;
/// `BPF_PROG_TYPE_SCHED_CLS`
const SCHED_CLS: u32 = 3;
/// Bytes of the verifier's log: reasons and counts are short.
const LOG: usize = 1 << 16;

/// A map of the kernel.
pub(crate) struct Map {
    fd: OwnedFd,
    key_size: usize,
    value_size: usize,
}

impl Map {
    /// As an object declares it.
    pub(crate) fn new(def: &MapDef) -> Result<Self> {
        let fd = bpf::create_map(MapAttr {
            map_type: def.kind.number(),
            key_size: def.key_size,
            value_size: def.value_size,
            max_entries: def.max_entries,
            map_flags: def.flags.0,
            ..MapAttr::default()
        })?;
        Ok(Self { fd, key_size: def.key_size as usize, value_size: def.value_size as usize })
    }

    pub(crate) fn update(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.update_values(key, value, 1)
    }

    /// As [`Map::update`], for a map that has a value for each of that many CPUs, each of whole words.
    pub(crate) fn update_values(&self, key: &[u8], values: &[u8], cpus: usize) -> Result<()> {
        self.element(commands::MAP_UPDATE, key, values.as_ptr() as u64, values.len() / cpus.max(1))
    }

    /// Puts a program into a slot of an array of programs.
    pub(crate) fn install(&self, slot: u32, program: &Program) -> Result<()> {
        self.update(&slot.to_ne_bytes(), &program.0.as_raw_fd().to_ne_bytes())
    }

    /// Empties a slot of an array of programs.
    pub(crate) fn remove(&self, slot: u32) -> Result<()> {
        self.element(commands::MAP_DELETE, &slot.to_ne_bytes(), 0, self.value_size)
    }

    /// The value of that key, in a map that has one value for all CPUs.
    pub(crate) fn lookup(&self, key: &[u8]) -> Result<Vec<u8>> {
        let mut value = vec![0; self.value_size];
        self.element(commands::MAP_LOOKUP, key, value.as_mut_ptr() as u64, self.value_size)?;
        Ok(value)
    }

    /// From now on no system call changes it, so the verifier may read its values as constants.
    pub(crate) fn freeze(&self) -> Result<()> {
        let mut attr = ElementAttr { map_fd: self.fd() as u32, ..ElementAttr::default() };
        // SAFETY: the structure of this command, without addresses.
        unsafe { bpf::command(commands::MAP_FREEZE, &mut attr) }?;
        Ok(())
    }

    /// Bytes that the kernel reports for it.
    pub(crate) fn bytes(&self) -> Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.fd()))?;
        let bytes = text.lines().find_map(|line| line.strip_prefix("memlock:")).ok_or("no memlock")?;
        Ok(bytes.trim().parse()?)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// A command for one element. `value` is the address of its value, `value_size` its size or that of each CPU's.
    fn element(&self, number: libc::c_long, key: &[u8], value: u64, value_size: usize) -> Result<()> {
        if key.len() != self.key_size || value_size != self.value_size {
            return Err("a key or value of another size than the map's".into());
        }
        let (map_fd, key) = (self.fd() as u32, key.as_ptr() as u64);
        let mut attr = ElementAttr { map_fd, key, value, ..ElementAttr::default() };
        // SAFETY: the structure of these commands; key and value are as large as the map's and outlive the call.
        unsafe { bpf::command(number, &mut attr) }?;
        Ok(())
    }
}

/// A loaded program for packets at a TC hook.
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Loads a program of an object as skep's loader links it. `maps` are the kernel's, in the object's order.
    pub(crate) fn load(object: &Object, name: &str, maps: &[&Map]) -> Result<Self> {
        let linked = object.linked(name, ProgramOptions::default())?;
        let insns: Vec<Insn> = linked.insns.iter().map(|insn| with_descriptor(insn, maps)).collect();
        Ok(Self(load(SCHED_CLS, &insns)??.0))
    }

    /// Runs it on a packet `repeat` times without leaving the kernel. Returns the last result and the time of all runs.
    pub(crate) fn run(&self, packet: &[u8], repeat: u32) -> Result<(u32, Duration)> {
        let started = Instant::now();
        let (result, _) = bpf::test_run(self.0.as_fd(), packet, &mut [], repeat)?;
        Ok((result, started.elapsed()))
    }
}

/// Figures of the kernel's verifier for a program that it accepts.
pub(crate) struct Stats {
    /// Microseconds that it took.
    pub(crate) us: f64,
    /// Instructions that it walked.
    pub(crate) walked: u64,
}

/// Has a program verified, and unloads it. The inner error is the reason for a refusal.
pub(crate) fn verify(insns: &[Insn]) -> Result<Result<Stats, String>> {
    let figures = |(_, log): (OwnedFd, String)| stats(&log).ok_or_else(|| format!("unknown log {log:?}"));
    load(SOCKET_FILTER, insns)?.map_or_else(|reason| Ok(Err(reason)), |loaded| Ok(Ok(figures(loaded)?)))
}

/// The program and the verifier's log, or the verifier's reason; the outer error is the system call's.
fn load(kind: u32, insns: &[Insn]) -> Result<Result<(OwnedFd, String), String>> {
    let code = encode_bytes(insns)?;
    match bpf::load(&Load { kind, flags: 0, code: &code, log_level: bpf::LOG_STATS, log_size: LOG }) {
        Ok(loaded) => Ok(Ok(loaded)),
        Err((error, log)) if log.is_empty() => Err(error.into()),
        Err((_, log)) => Ok(Err(reason(&log))),
    }
}

fn with_descriptor(insn: &Insn, maps: &[&Map]) -> Insn {
    let fd = |map: u32| maps.get(map as usize).map_or(-1, |map| map.fd());
    match *insn {
        Insn::LoadImm64 { dst, value: Imm64::Map(map) } => {
            Insn::LoadImm64 { dst, value: Imm64::MapFd(fd(map)) }
        }
        Insn::LoadImm64 { dst, value: Imm64::MapValue { map, offset } } => {
            Insn::LoadImm64 { dst, value: Imm64::MapFdValue { fd: fd(map), offset } }
        }
        other => other,
    }
}

fn stats(log: &str) -> Option<Stats> {
    let number = |before: &str| {
        let rest = log.lines().find_map(|line| line.strip_prefix(before))?;
        rest.split(' ').next()?.parse::<u64>().ok()
    };
    Some(Stats { us: number("verification time ")? as f64, walked: number("processed ")? })
}

/// The last line of a log that is no figure.
fn reason(log: &str) -> String {
    let figures = ["verification time", "stack depth", "processed"];
    let reasons = log.lines().rev().find(|line| !figures.iter().any(|figure| line.starts_with(figure)));
    reasons.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_the_log() {
        let log = "verification time 27 usec\nstack depth 8+0\nprocessed 1300 insns (limit 1000000) max_states_per_insn 4\n";
        let found = stats(log).unwrap();
        assert_eq!((found.us, found.walked), (27.0, 1300));
        assert!(stats("").is_none());
    }

    #[test]
    fn the_reason_is_the_last_line_that_is_no_figure() {
        let log = "R1 min value is negative\nverification time 3 usec\nstack depth 0\nprocessed 4 insns\n";
        assert_eq!(reason(log), "R1 min value is negative");
    }
}
