//! A host for generated programs: memory, maps and helpers, all deterministic.
//!
//! The maps are minimal. Their handles are addresses of [`Table`]s, which the look-up helper reads; there are no
//! locks, so a host serves one thread. Addresses are constant for the host's life, and only contents are reset
//! between runs, so that two runs see the same addresses.

use skep_abi::{EndsLink, InlineArray, Linkage, MapDef, MapKind, MapLink, RunEnv, SkbContext, XdpContext};

use crate::helpers::{AFTER, begin, implementations, more};
use crate::own;
use crate::program::{Flavour, INNER_MAPS, OUTER, TIMED, TestProgram, inner, maps};
use crate::source::Source;

/// The virtual CPU of all runs, one of [`CPUS`].
const CPU: u32 = 1;
const CPUS: usize = 2;
/// Initial bytes of packet memory before and after the packet.
const ROOM: usize = 64;
/// Maximum initial size of the packet in bytes.
const PACKET: usize = 96;
/// Minimum initial size of the packet in bytes: the kernel, with which results are compared, has no shorter ones.
const SHORTEST: u64 = 14;

/// Memory, maps and helpers.
pub struct Host {
    /// The buffer, or the packet with its headroom and tailroom, aligned to 16.
    memory: Vec<u128>,
    /// The context of either flavour.
    context: Box<XdpContext>,
    skb: Box<SkbContext>,
    /// Never grows: handles are addresses in it.
    tables: Vec<Table>,
    /// Candidates for the elements of the array of maps. Never grows either.
    inner: Vec<Table>,
    linkage: Linkage,
    flavour: Flavour,
    end: Option<End>,
}

/// Where runs end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// After more units than this ([`skep_abi::EndsLink`]).
    pub units: i32,
    /// At this call of the helper that mixes numbers, which ends the run; 0 for never.
    pub call: u64,
}

/// One map: `max_entries` values, for each CPU if its kind is per-CPU.
pub(crate) struct Table {
    pub(crate) kind: MapKind,
    pub(crate) stride: usize,
    pub(crate) entries: u32,
    pub(crate) key_size: u32,
    pub(crate) values: Vec<u64>,
}

/// The state after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The buffer, or the packet with its headroom and tailroom.
    pub memory: Vec<u8>,
    /// The packet's range in it.
    pub packet: (u64, u64),
    /// The maps' values, except those with timers.
    pub maps: Vec<Vec<u64>>,
    /// The values with timers.
    pub timed: Vec<u64>,
    /// The values of inner maps.
    pub inner: Vec<Vec<u64>>,
    /// The number of tail calls of the run.
    pub tail_calls: u32,
    /// Whether the run was over before its end, and the units that were left.
    pub over: (bool, i32),
}

impl Table {
    fn new(def: &MapDef) -> Self {
        let stride = def.value_size.next_multiple_of(8) as usize;
        let copies = if def.kind.is_per_cpu() { CPUS } else { 1 };
        let values = vec![0; stride / 8 * def.max_entries as usize * copies];
        Self { kind: def.kind, stride, entries: def.max_entries, key_size: def.key_size, values }
    }
}

impl Host {
    /// A host for programs of that flavour.
    pub fn new(flavour: Flavour) -> Self {
        let bytes = match flavour {
            Flavour::Buffer { len } => len as usize,
            Flavour::Xdp | Flavour::Skb => 2 * ROOM + PACKET,
        };
        let inner = inner();
        let tables = maps().iter().map(Table::new).collect();
        let mut host = Self {
            memory: vec![0; bytes.div_ceil(16).max(1)],
            context: Box::default(),
            skb: Box::default(),
            tables,
            inner: (0..INNER_MAPS).map(|_| Table::new(&inner)).collect(),
            linkage: Linkage::default(),
            flavour,
            end: None,
        };
        host.linkage = Linkage {
            maps: host.links(),
            helpers: implementations().into(),
            inline_linux_helpers: true,
            functions: own::implementations().into(),
            ..Linkage::default()
        };
        host
    }

    /// The addresses of maps and helpers.
    pub fn linkage(&self) -> &Linkage {
        &self.linkage
    }

    /// From now on runs end early, also where programs were prepared before with an end; or never.
    pub fn set_end(&mut self, end: Option<End>) {
        let link = || EndsLink { after: AFTER.to_vec(), charge: Some(more) };
        self.linkage.ends = end.map(|_| link());
        self.end = end;
    }

    /// Refills everything that programs may read. The same source makes the same contents. `hints` are numbers at
    /// which the program may behave specially.
    pub fn reset(&mut self, source: &mut Source, hints: &[u64]) {
        let mut last = 0;
        let mut number = |source: &mut Source| {
            // Equal numbers, and numbers with equal lower halves, are interesting for comparisons.
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
        // A copy of the source for inner maps and timers, so that they do not change the other contents.
        let mut apart = source.clone();
        let (plain, timed) = self.tables.split_at_mut(TIMED as usize);
        for table in plain.iter_mut().filter(|table| table.kind != MapKind::ArrayOfMaps) {
            table.values.fill_with(|| number(source));
        }
        let source_of_inner = &mut apart;
        for table in &mut self.inner {
            table.values.fill_with(|| source_of_inner.number());
        }
        timed[0].values.fill_with(|| source_of_inner.number());
        let inner: Vec<u64> =
            self.inner.iter_mut().map(|table| (&raw mut *table).expose_provenance() as u64).collect();
        self.tables[OUTER as usize].values.fill_with(|| match source_of_inner.chance(25) {
            true => 0,
            false => source_of_inner.pick(&inner),
        });
        if self.flavour.has_packet() {
            let start = self.memory.as_mut_ptr().expose_provenance() as u64;
            let data = start + ROOM as u64;
            // Programs compare with the packet's end, so packets end at interesting lengths.
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
                ..XdpContext::default()
            };
            let packet = &*self.context;
            *self.skb = SkbContext {
                data: packet.data,
                data_end: packet.data_end,
                data_meta: packet.data_meta,
                buffer_start: packet.buffer_start,
                buffer_end: packet.buffer_end,
                len: length as u32,
                network: 14,
                ingress_ifindex: packet.ingress_ifindex,
                mark: packet.rx_queue_index,
                priority: packet.egress_ifindex,
                ..SkbContext::default()
            };
        }
    }

    /// Runs a program through `run`, which receives `r1`, `r2` and the environment; returns the state afterwards.
    pub fn run<T>(&mut self, run: impl FnOnce(u64, u64, &mut RunEnv) -> T) -> (T, State) {
        let memory = self.memory.as_mut_ptr().expose_provenance() as u64;
        let context = match self.flavour {
            Flavour::Skb => (&raw mut *self.skb).expose_provenance() as u64,
            _ => (&raw mut *self.context).expose_provenance() as u64,
        };
        let timed = (&raw mut self.tables[TIMED as usize]).expose_provenance() as u64;
        let mut env = RunEnv { cpu: CPU, host: timed, ..RunEnv::default() };
        if let Some(end) = self.end {
            begin(&mut env, end.units);
            env.run = end.call;
        }
        let result = match self.flavour {
            Flavour::Buffer { len } => run(memory, len.into(), &mut env),
            Flavour::Xdp | Flavour::Skb => {
                env.context = context;
                run(context, 0, &mut env)
            }
        };
        (result, self.state(&env))
    }

    /// Whether this host suits the program.
    pub fn suits(&self, program: &TestProgram) -> bool {
        self.flavour == program.flavour
    }

    /// The packet's bytes, for hosts of packets.
    pub fn packet(&self) -> &[u8] {
        let start = (self.context.data - self.context.buffer_start) as usize;
        let end = (self.context.data_end - self.context.buffer_start) as usize;
        // SAFETY: the memory is `u128`s, whose bytes may all be read; helpers keep the packet inside.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast::<u8>(), self.memory.len() * 16) };
        &bytes[start..end]
    }

    fn state(&self, env: &RunEnv) -> State {
        let bytes = match self.flavour {
            Flavour::Buffer { len } => len as usize,
            Flavour::Xdp | Flavour::Skb => self.memory.len() * 16,
        };
        let memory: Vec<u8> = self.memory.iter().flat_map(|cell| cell.to_le_bytes()).take(bytes).collect();
        let packet = match self.flavour {
            Flavour::Buffer { .. } => (0, 0),
            Flavour::Xdp | Flavour::Skb => {
                let start = self.context.buffer_start;
                (self.context.data - start, self.context.data_end - start)
            }
        };
        // Addresses of maps are not part of the state.
        let (plain, timed) = self.tables.split_at(TIMED as usize);
        let tables = plain.iter().filter(|table| table.kind != MapKind::ArrayOfMaps);
        let timed = timed[0].values.clone();
        let maps = tables.map(|table| table.values.clone()).collect();
        let inner = self.inner.iter().map(|table| table.values.clone()).collect();
        State {
            memory,
            packet,
            maps,
            timed,
            inner,
            tail_calls: skep_abi::MAX_TAIL_CALLS - env.tail_calls_left,
            over: (env.thrown == RunEnv::ENDED, env.units + env.sections.cast_signed()),
        }
    }

    fn links(&mut self) -> Vec<MapLink> {
        self.tables
            .iter_mut()
            .map(|table| {
                let base = table.values.as_mut_ptr().expose_provenance() as u64;
                let per_cpu = table.kind.is_per_cpu();
                let array = table.kind.is_array() && table.kind != MapKind::ArrayOfMaps;
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
                    programs: None,
                    arena: None,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sources_make_equal_states_at_equal_addresses() {
        for flavour in [Flavour::Buffer { len: 33 }, Flavour::Xdp, Flavour::Skb] {
            let mut host = Host::new(flavour);
            let mut run = || {
                host.reset(&mut Source::from_seed(1), &[5]);
                host.run(|r1, r2, env| (r1, r2, env.context))
            };
            assert_eq!(run(), run());
        }
    }
}
