//! skep's maps: from programs, and from their host.

use super::Subject;
use super::programs::{self, Kind, Op};
use crate::Result;
use skep::{Map, Packet, Program, RingBuffer, Runtime, UpdateFlags};
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};

/// A map with its elements, and the program for each operation.
pub(super) struct Loaded {
    pub(super) kind: Kind,
    pub(super) map: Arc<Map>,
    programs: Vec<(Op, Program)>,
}

impl Loaded {
    /// With keys from zero to `entries`.
    pub(super) fn new(runtime: &Runtime, kind: Kind, entries: u32, keys: &[u32]) -> Result<Self> {
        let mut shared: Option<[Arc<Map>; 2]> = None;
        let mut programs = Vec::new();
        for &op in [Op::Nothing].iter().chain(kind.ops) {
            let object = programs::object(&kind, op, entries, keys)?;
            let mut linker = runtime.linker(&object);
            if let Some([map, table]) = &shared {
                linker = linker.map("measured", Arc::clone(map)).map("keys", Arc::clone(table));
            }
            let module = linker.load()?;
            let map = |name: &str| module.map(name).cloned().ok_or_else(|| format!("no map {name}"));
            if shared.is_none() {
                shared = Some([map("measured")?, map("keys")?]);
            }
            programs.push((op, module.programs()[0].clone()));
        }
        let [map, table] = shared.ok_or("no programs")?;
        table.update(&[0; 4], &programs::bytes(keys), UpdateFlags::Any)?;
        if kind.has_keys() {
            let value = vec![0; map.host_value_size()];
            for key in 0..entries {
                let (key, len) = kind.key(key);
                map.update(&key[..len], &value, UpdateFlags::Any)?;
            }
        }
        Ok(Self { kind, map, programs })
    }

    /// Its program for that.
    pub(super) fn program(&self, op: Op, keys: usize) -> Option<FromPrograms> {
        let (_, program) = self.programs.iter().find(|(other, _)| *other == op)?;
        let consumer = RingBuffer::new(&self.map).ok().map(Mutex::new);
        Some(FromPrograms { program: program.clone(), op, keys, consumer })
    }

    /// The same by the host's methods.
    pub(super) fn host(&self, op: Op, keys: &Arc<[u32]>) -> Option<FromHost> {
        let keys = Arc::clone(keys);
        self.kind.has_keys().then(|| FromHost { kind: self.kind, map: Arc::clone(&self.map), op, keys })
    }
}

/// A program that is run.
pub(super) struct FromPrograms {
    program: Program,
    op: Op,
    keys: usize,
    /// Makes room again in a ring buffer.
    consumer: Option<Mutex<RingBuffer>>,
}

impl Subject for FromPrograms {
    fn prepare(&self) {
        if let Some(consumer) = &self.consumer {
            consumer.lock().unwrap_or_else(PoisonError::into_inner).for_each(|_| ());
        }
    }

    fn turn(&self, thread: u32, windows: u32) -> Result<u64> {
        let mut packet = Packet::new(&programs::packet(self.op, thread, self.keys));
        let mut well = 0;
        for _ in 0..windows {
            well += self.program.run(&mut packet)?;
        }
        Ok(well)
    }
}

/// Methods of a map.
pub(super) struct FromHost {
    kind: Kind,
    map: Arc<Map>,
    op: Op,
    keys: Arc<[u32]>,
}

impl Subject for FromHost {
    fn turn(&self, thread: u32, windows: u32) -> Result<u64> {
        let mut value = vec![0; self.map.host_value_size()];
        let bits = programs::bits(self.op, thread);
        let update = |key: &[u8], value: &[u8]| self.map.update(key, value, UpdateFlags::Any).is_ok();
        let mut well = 0;
        for &key in programs::walk(&self.keys, thread, windows).flatten() {
            let (key, len) = self.kind.key(key | bits);
            let key = &key[..len];
            well += u64::from(match self.op {
                Op::Nothing | Op::PushPop | Op::ReserveSubmit => black_box(len) > 0,
                Op::LookUp => self.map.lookup_into(key, &mut value) == Ok(true),
                Op::Update => update(key, &value),
                Op::Delete => self.map.delete(key).is_ok(),
                Op::InsertDelete => update(key, &value) && self.map.delete(key).is_ok(),
            });
        }
        Ok(well)
    }
}
