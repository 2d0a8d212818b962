//! A host for generated programs: memory, maps and helpers, all deterministic.
//!
//! The maps are as plain as can be. Their handles are addresses of [`Table`]s, which the look-up helper reads;
//! nothing is locked, so a host serves one thread. All memory stays where it is for the host's life: only
//! contents are reset between runs, so that two runs see the same addresses.

use std::borrow::Cow;

use skep_abi::{
    Access, ArgKind, HelperFn, HelperProto, InlineArray, Linkage, MapKind, MapLink, RetKind, RunEnv,
    XdpContext, linux_helper,
};

use crate::program::{Flavour, TestProgram, maps};
use crate::source::Source;

pub(crate) const LOOKUP: u32 = 1;
pub(crate) const CPU_NUMBER: u32 = 8;
pub(crate) const ADJUST_HEAD: u32 = 44;
/// Mixes five numbers, and the run's CPU number.
pub(crate) const MIX: u32 = 1000;
/// Sums the bytes of memory.
pub(crate) const SUM: u32 = 1001;
/// Fills memory; returns nothing.
pub(crate) const FILL: u32 = 1002;
/// A number from 0 to 15.
pub(crate) const SMALL: u32 = 1003;
/// Turns the bytes of memory round.
pub(crate) const REVERSE: u32 = 1004;

/// The virtual CPU that runs are on, of [`CPUS`].
const CPU: u32 = 1;
const CPUS: usize = 2;
/// Bytes of packet memory before and behind the packet at first.
const ROOM: usize = 64;
/// Bytes of the packet at first, at most.
const PACKET: usize = 96;
/// At least: the kernel, with which results are compared, has no shorter ones.
const SHORTEST: u64 = 14;

/// The prototype of a helper that hosts of this crate have.
pub fn helpers(id: u32) -> Option<&'static HelperProto> {
    match id {
        LOOKUP | CPU_NUMBER | ADJUST_HEAD => linux_helper(id),
        _ => OWN.iter().find(|proto| proto.id == id),
    }
}

const fn own(id: u32, name: &'static str, args: [ArgKind; 5], ret: RetKind) -> HelperProto {
    HelperProto {
        id,
        name: Cow::Borrowed(name),
        args,
        ret,
        gpl_only: false,
        moves_packet: false,
        acquires: false,
        sleeps: false,
    }
}

const fn memory(access: Access) -> ArgKind {
    ArgKind::Memory { access, nullable: false }
}

static OWN: [HelperProto; 5] = [
    own(MIX, "mix", [ArgKind::Scalar; 5], RetKind::Scalar),
    own(
        SUM,
        "sum",
        [memory(Access::Read), ArgKind::Size { zero: true }, ArgKind::Scalar, ArgKind::None, ArgKind::None],
        RetKind::Scalar,
    ),
    own(
        FILL,
        "fill",
        [memory(Access::Write), ArgKind::Size { zero: false }, ArgKind::Scalar, ArgKind::None, ArgKind::None],
        RetKind::Void,
    ),
    own(
        SMALL,
        "small",
        [ArgKind::Scalar, ArgKind::None, ArgKind::None, ArgKind::None, ArgKind::None],
        RetKind::Range { min: 0, max: 15 },
    ),
    own(
        REVERSE,
        "reverse",
        [
            ArgKind::FixedMemory { access: Access::ReadWrite, bytes: 16 },
            ArgKind::None,
            ArgKind::None,
            ArgKind::None,
            ArgKind::None,
        ],
        RetKind::Scalar,
    ),
];

/// Memory, maps and helpers.
pub struct Host {
    /// The buffer, or the packet with its room, aligned to 16.
    memory: Vec<u128>,
    context: Box<XdpContext>,
    /// Never grows: handles are addresses in it.
    tables: Vec<Table>,
    linkage: Linkage,
    flavour: Flavour,
}

/// One map: `max_entries` values, per CPU where its kind says so.
struct Table {
    kind: MapKind,
    stride: usize,
    entries: u32,
    values: Vec<u64>,
}

/// What a run left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The buffer; the packet with its room.
    pub memory: Vec<u8>,
    /// Where the packet begins and ends in it.
    pub packet: (u64, u64),
    /// The maps' values.
    pub maps: Vec<Vec<u64>>,
    /// The environment's count of tail calls.
    pub tail_calls: u32,
}

impl Host {
    /// A host for programs of that flavour.
    pub fn new(flavour: Flavour) -> Self {
        let bytes = match flavour {
            Flavour::Buffer { len } => len as usize,
            Flavour::Xdp => 2 * ROOM + PACKET,
        };
        let tables: Vec<Table> = maps()
            .iter()
            .map(|def| {
                let stride = def.value_size.next_multiple_of(8) as usize;
                let copies = if def.kind.is_per_cpu() { CPUS } else { 1 };
                let words = stride / 8 * def.max_entries as usize * copies;
                Table { kind: def.kind, stride, entries: def.max_entries, values: vec![0; words] }
            })
            .collect();
        let mut host = Self {
            memory: vec![0; bytes.div_ceil(16).max(1)],
            context: Box::default(),
            tables,
            linkage: Linkage::default(),
            flavour,
        };
        host.linkage = Linkage { maps: host.links(), helpers: implementations(), inline_linux_helpers: true };
        host
    }

    /// Where the maps and helpers are.
    pub fn linkage(&self) -> &Linkage {
        &self.linkage
    }

    /// Fills everything that programs may read anew. The same source makes the same contents. `hints` are
    /// numbers at which the program to be run may do something special.
    pub fn reset(&mut self, source: &mut Source, hints: &[u64]) {
        let mut last = 0;
        let mut number = |source: &mut Source| {
            // Equal numbers, and numbers equal in their lower halves, are what comparisons are about.
            last = match source.below(16) {
                0 | 1 => last,
                2 => last ^ u64::from(source.word() as u32) << 32,
                3..=8 if !hints.is_empty() => {
                    source.pick(hints).wrapping_add(u64::from(source.below(5))).wrapping_sub(2)
                }
                _ => source.number(),
            };
            last
        };
        for cell in &mut self.memory {
            *cell = u128::from(number(source)) << 64 | u128::from(number(source));
        }
        for table in &mut self.tables {
            table.values.fill_with(|| number(source));
        }
        if self.flavour == Flavour::Xdp {
            let start = self.memory.as_mut_ptr().expose_provenance() as u64;
            let data = start + ROOM as u64;
            // Programs compare with the packet's end: packets end where that makes a difference.
            let length = match source.below(3) {
                0 => PACKET as u64,
                _ => number(source).clamp(SHORTEST, PACKET as u64),
            };
            *self.context = XdpContext {
                data,
                data_end: data + length,
                data_meta: data,
                buffer_start: start,
                buffer_end: start + (2 * ROOM + PACKET) as u64,
                ingress_ifindex: source.number() as u32,
                rx_queue_index: source.number() as u32,
                egress_ifindex: source.number() as u32,
                reserved: 0,
            };
        }
    }

    /// Runs a program through `run`, which is given `r1`, `r2` and the environment, and reports the state
    /// afterwards.
    pub fn run<T>(&mut self, run: impl FnOnce(u64, u64, &mut RunEnv) -> T) -> (T, State) {
        let memory = self.memory.as_mut_ptr().expose_provenance() as u64;
        let context = (&raw mut *self.context).expose_provenance() as u64;
        let mut env = RunEnv { cpu: CPU, ..RunEnv::default() };
        let result = match self.flavour {
            Flavour::Buffer { len } => run(memory, len.into(), &mut env),
            Flavour::Xdp => {
                env.context = context;
                run(context, 0, &mut env)
            }
        };
        (result, self.state(&env))
    }

    /// Whether this host is made for the program.
    pub fn suits(&self, program: &TestProgram) -> bool {
        self.flavour == program.flavour
    }

    /// The packet's bytes, for hosts of packets.
    pub fn packet(&self) -> &[u8] {
        let start = (self.context.data - self.context.buffer_start) as usize;
        let end = (self.context.data_end - self.context.buffer_start) as usize;
        // SAFETY: the memory is `u128`s, of which any bytes may be looked at; helpers keep the packet inside.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast::<u8>(), self.memory.len() * 16) };
        &bytes[start..end]
    }

    fn state(&self, env: &RunEnv) -> State {
        let bytes = match self.flavour {
            Flavour::Buffer { len } => len as usize,
            Flavour::Xdp => self.memory.len() * 16,
        };
        let memory: Vec<u8> = self.memory.iter().flat_map(|cell| cell.to_le_bytes()).take(bytes).collect();
        let packet = match self.flavour {
            Flavour::Buffer { .. } => (0, 0),
            Flavour::Xdp => {
                let start = self.context.buffer_start;
                (self.context.data - start, self.context.data_end - start)
            }
        };
        let maps = self.tables.iter().map(|table| table.values.clone()).collect();
        State { memory, packet, maps, tail_calls: env.tail_calls }
    }

    fn links(&mut self) -> Vec<MapLink> {
        self.tables
            .iter_mut()
            .map(|table| {
                let base = table.values.as_mut_ptr().expose_provenance() as u64;
                let per_cpu = table.kind.is_per_cpu();
                let array = table.kind.is_array();
                let cpu_stride = if per_cpu { table.stride as u32 * table.entries } else { 0 };
                MapLink {
                    handle: (&raw mut *table).expose_provenance() as u64,
                    value_base: (array && !per_cpu).then_some(base),
                    inline: array.then_some(InlineArray {
                        base,
                        stride: table.stride as u32,
                        cpu_stride,
                        max_entries: table.entries,
                    }),
                }
            })
            .collect()
    }
}

fn implementations() -> Vec<(u32, HelperFn)> {
    vec![
        (LOOKUP, look_up),
        (CPU_NUMBER, cpu_number),
        (ADJUST_HEAD, adjust_head),
        (MIX, mix),
        (SUM, sum),
        (FILL, fill),
        (SMALL, small),
        (REVERSE, reverse),
    ]
}

unsafe extern "C" fn look_up(map: u64, key: u64, _: u64, _: u64, _: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the prototype asks for a map and a key of its size; handles are addresses of tables of the host,
    // which lives as long as the run, and whose values nobody else holds a reference to.
    unsafe {
        let table = std::ptr::with_exposed_provenance_mut::<Table>(map as usize);
        let base = (*table).values.as_mut_ptr();
        let key = std::ptr::with_exposed_provenance::<u8>(key as usize);
        let index = if (*table).kind.is_array() {
            key.cast::<u32>().read_unaligned()
        } else {
            // A table finds every key whose lowest byte is small.
            (key.cast::<u64>().read_unaligned() & 0xff) as u32
        };
        if index >= (*table).entries {
            return 0;
        }
        let copy = if (*table).kind.is_per_cpu() { (*env).cpu } else { 0 };
        let cell = index as usize + (*table).entries as usize * copy as usize;
        base.add(cell * (*table).stride / 8).expose_provenance() as u64
    }
}

unsafe extern "C" fn cpu_number(_: u64, _: u64, _: u64, _: u64, _: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the caller passes the environment of the run.
    unsafe { (*env).cpu.into() }
}

unsafe extern "C" fn adjust_head(context: u64, delta: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    let context = std::ptr::with_exposed_provenance_mut::<XdpContext>(context as usize);
    // SAFETY: the prototype asks for the context of the run, which is the host's.
    let context = unsafe { &mut *context };
    let data = context.data.wrapping_add(i64::from(delta as i32) as u64);
    if data < context.buffer_start || data + 14 > context.data_end {
        return -22i64 as u64;
    }
    context.data = data;
    context.data_meta = data;
    0
}

unsafe extern "C" fn mix(a: u64, b: u64, c: u64, d: u64, e: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the caller passes the environment of the run.
    let cpu = unsafe { (*env).cpu };
    [a, b, c, d, e].iter().fold(cpu.into(), |sum: u64, x| sum.rotate_left(7).wrapping_mul(31) ^ x)
}

unsafe extern "C" fn sum(at: u64, bytes: u64, seed: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    let at = std::ptr::with_exposed_provenance::<u8>(at as usize);
    // SAFETY: the prototype asks for that much readable memory.
    (0..bytes as usize).fold(seed, |sum, i| sum.wrapping_mul(257).wrapping_add(unsafe { *at.add(i) }.into()))
}

unsafe extern "C" fn fill(at: u64, bytes: u64, value: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(at as usize);
    for i in 0..bytes as usize {
        // SAFETY: the prototype asks for that much writable memory.
        unsafe { at.add(i).write((value as u8).wrapping_add(i as u8)) };
    }
    0xdead
}

unsafe extern "C" fn small(a: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    (a ^ a >> 32) & 15
}

unsafe extern "C" fn reverse(at: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    let at = std::ptr::with_exposed_provenance_mut::<[u8; 16]>(at as usize);
    // SAFETY: the prototype asks for 16 bytes of readable and writable memory; bytes need no alignment.
    unsafe {
        let mut bytes = at.read();
        bytes.reverse();
        at.write(bytes);
        u64::from(bytes[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_abi::XDP;

    #[test]
    fn every_implementation_has_a_prototype_and_the_other_way_round() {
        let implemented = implementations();
        assert!(implemented.is_sorted_by_key(|(id, _)| *id));
        for (id, _) in &implemented {
            assert_eq!(helpers(*id).map(|proto| proto.id), Some(*id));
        }
        for proto in &OWN {
            assert!(implemented.iter().any(|(id, _)| *id == proto.id), "{}", proto.name);
        }
        assert!(XDP.helpers.contains(LOOKUP) && XDP.helpers.contains(ADJUST_HEAD));
    }

    #[test]
    fn the_same_source_makes_the_same_state_at_the_same_place() {
        for flavour in [Flavour::Buffer { len: 33 }, Flavour::Xdp] {
            let mut host = Host::new(flavour);
            let mut run = || {
                host.reset(&mut Source::from_seed(1), &[5]);
                host.run(|r1, r2, env| (r1, r2, env.context))
            };
            assert_eq!(run(), run());
        }
    }
}
