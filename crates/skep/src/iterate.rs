//! Iterators: a program of type `iter` is run for each object of some sort, and what it writes is collected.
//!
//! ```text
//!   host  Iterate::Elements { map } ----> for each element, then once without:
//!                                            context { meta, map, key, value } ----> program ----> bytes
//! ```
//!
//! A walk over a map is one read section: elements that the program or anybody else deletes meanwhile stay memory of
//! the map until its end. What the verifier has not seen, the sizes of key and value, is compared with the map before
//! ([`skep_verifier::ElementUse`]).

mod objects;

use crate::error::{Error, IterateFault};
use crate::image::Engine;
use crate::packet::{Effects, SeqOutput};
use crate::program::{Call, Program};
use crate::shown::{Argument, Layout, Structure};
use skep_abi::{MapFlags, MapKind};
use skep_maps::Map;
use skep_world::{Protocol, Socket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use objects::{ShownLink, ShownMap, ShownProgram};

/// The most bytes of a whole walk.
const MOST: usize = 64 << 20;
/// How often a program is run for one object if it asks for that (result 1).
const ATTEMPTS: u32 = 16;

/// What an iterator shows.
///
/// ```
/// use skep::{Iterate, Object, Runtime, ShownMap};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/objects/iterate/");
/// # std::env::set_current_dir(directory)?;
/// let module = Runtime::new()?.load(&Object::open("elements.bpf.o")?)?;
/// let map = module.map("table").expect("the object has it");
/// map.update(&7u32.to_ne_bytes(), &70u64.to_ne_bytes(), skep::UpdateFlags::Any)?;
///
/// let dump = module.program("dump").expect("the object has it");
/// let text = dump.iterate(Iterate::Elements { map, shown: &ShownMap::of(map) })?;
/// assert_eq!(text, b"0: 7 = 70\n1 in table\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Iterate<'a> {
    /// The elements of a hash table or array: programs in sections `iter/bpf_map_elem`. They may write to values that
    /// are not per CPU, if programs may write to the map; of values per CPU they see a copy of all.
    Elements {
        /// The map.
        map: &'a Map,
        /// What they read of it.
        shown: &'a ShownMap,
    },
    /// Maps: `iter/bpf_map`.
    Maps(&'a [ShownMap]),
    /// Programs: `iter/bpf_prog`.
    Programs(&'a [ShownProgram]),
    /// Links: `iter/bpf_link`.
    Links(&'a [ShownLink]),
    /// Sockets: of TCP for `iter/tcp`, of UDP for `iter/udp`. Others are passed over.
    Sockets(&'a [Arc<Socket>]),
}

impl Program {
    /// Runs a program of type `iter` for each object, and once without an object at the end. Returns all that it wrote
    /// by `bpf_seq_printf` and `bpf_seq_write`.
    ///
    /// A program with the result 1 is run for the same object again, without what it wrote, up to 16 times. The thread
    /// must not block SIGSEGV or SIGBUS.
    ///
    /// # Errors
    ///
    /// [`Error::Iterate`] if it is not a program for such objects; if it uses more of keys or values than the map has,
    /// or writes where it may not; if it writes more than 32,768 bytes about one object, or 64 MiB in all; if it has
    /// the result 1 each time. [`Error::Slots`] and [`Error::LockHeld`] as for [`Program::run`].
    pub fn iterate(&self, over: Iterate<'_>) -> Result<Vec<u8>, Error> {
        self.iterate_with(Engine::Jit, over)
    }

    /// [`Program::iterate`] on the given engine.
    ///
    /// # Errors
    ///
    /// As [`Program::iterate`], and [`Error::Interpret`] as for [`Program::run_with`].
    pub fn iterate_with(&self, engine: Engine, over: Iterate<'_>) -> Result<Vec<u8>, Error> {
        self.may_iterate(over)?;
        let layout = self.image().layout.as_ref().ok_or_else(|| self.fault(IterateFault::NoIterator))?;
        let mut walk = Walk::new(self, engine, layout);
        match over {
            Iterate::Elements { map, shown } => walk.elements(map, shown)?,
            Iterate::Maps(maps) => {
                for map in maps {
                    let mut structure = map.structure(layout);
                    let span = structure.span();
                    walk.show(Given { object: span.0, spans: &[span], ..Given::default() })?;
                }
                walk.show(Given::default())?;
            }
            Iterate::Programs(programs) => {
                for program in programs {
                    let mut structures = program.structures(layout);
                    let (object, spans) = structures.spans();
                    walk.show(Given { object, spans: &spans, ..Given::default() })?;
                }
                walk.show(Given::default())?;
            }
            Iterate::Links(links) => {
                for link in links {
                    let mut structures = link.structures(layout);
                    let (object, spans) = structures.spans();
                    walk.show(Given { object, spans: &spans, ..Given::default() })?;
                }
                walk.show(Given::default())?;
            }
            Iterate::Sockets(sockets) => {
                let of = if layout.target == "udp" { Protocol::Udp } else { Protocol::Tcp };
                for socket in sockets.iter().filter(|socket| socket.protocol == of) {
                    let mut structure = objects::socket(socket, layout);
                    let (object, user) = (structure.address(), socket.uid);
                    walk.show(Given { object, user, ..Given::default() })?;
                }
                walk.show(Given::default())?;
            }
        }
        Ok(walk.written)
    }

    /// The objects that it is for, as its section names them; `None` if it is no iterator's.
    pub fn iterates(&self) -> Option<&'static str> {
        self.image().layout.as_ref().map(|layout| layout.target)
    }

    /// Whether it can be run over these objects: the errors of [`Program::iterate`] that do not depend on what it does.
    ///
    /// # Errors
    ///
    /// [`Error::Iterate`].
    pub fn may_iterate(&self, over: Iterate<'_>) -> Result<(), Error> {
        let target = self.iterates().ok_or_else(|| self.fault(IterateFault::NoIterator))?;
        let given = match over {
            Iterate::Elements { .. } => "bpf_map_elem",
            Iterate::Maps(_) => "bpf_map",
            Iterate::Programs(_) => "bpf_prog",
            Iterate::Links(_) => "bpf_link",
            Iterate::Sockets(_) if target == "udp" => target,
            Iterate::Sockets(_) => "tcp",
        };
        if given != target {
            return Err(self.fault(IterateFault::OtherObjects { expected: target, given }));
        }
        let Iterate::Elements { map, .. } = over else { return Ok(()) };
        let (def, used) = (map.def(), self.verified().element_use());
        if !is_shown(map.kind()) {
            return Err(self.fault(IterateFault::Kind { map: map.name().to_owned(), kind: map.kind() }));
        }
        if !map.fits(&self.shared().domain) {
            return Err(self.fault(IterateFault::OtherRuntime { map: map.name().to_owned() }));
        }
        let value_size = map.host_value_size();
        if used.key > def.key_size || used.value as usize > value_size {
            let (key, value) = (def.key_size, value_size);
            let map = map.name().to_owned();
            return Err(self.fault(IterateFault::Size { map, key, value, used }));
        }
        let barred = |flag| def.flags.contains(flag);
        let special = !def.fields.is_empty();
        if used.writes && (special || barred(MapFlags::RDONLY_PROG) || def.frozen.is_some())
            || used.value > 0 && (special || barred(MapFlags::WRONLY_PROG))
        {
            return Err(self.fault(IterateFault::Rights { map: map.name().to_owned() }));
        }
        Ok(())
    }

    #[cold]
    fn fault(&self, fault: IterateFault) -> Error {
        Error::Iterate { program: self.name().to_owned(), fault }
    }
}

/// Whether elements of maps of that kind can be shown.
fn is_shown(kind: MapKind) -> bool {
    use MapKind::{Array, Hash, LruHash, LruPercpuHash, PercpuArray, PercpuHash};
    matches!(kind, Hash | LruHash | PercpuHash | LruPercpuHash | Array | PercpuArray)
}

/// Addresses of what is shown next, or 0.
#[derive(Clone, Copy, Default)]
struct Given<'s> {
    /// Of the structure that is not `struct bpf_iter_meta`.
    object: u64,
    key: u64,
    value: u64,
    /// The user that owns a socket.
    user: u32,
    /// Addresses and lengths of all of that.
    spans: &'s [(u64, usize)],
}

/// A walk over objects.
struct Walk<'p> {
    program: &'p Program,
    engine: Engine,
    layout: &'p Layout,
    meta: Structure<'p>,
    /// What `meta` leads to: helpers do not look at it.
    seq: Structure<'p>,
    effects: Effects,
    /// How many objects were shown.
    shown: u64,
    written: Vec<u8>,
}

impl<'p> Walk<'p> {
    fn new(program: &'p Program, engine: Engine, layout: &'p Layout) -> Self {
        static SESSIONS: AtomicU64 = AtomicU64::new(1);
        let mut meta = layout.structure("bpf_iter_meta");
        // Pairs with nothing: a number that no other walk has.
        meta.set("session_id", SESSIONS.fetch_add(1, Ordering::Relaxed));
        let effects = Effects::with_output();
        let seq = layout.structure("seq_file");
        Self { program, engine, layout, meta, seq, effects, shown: 0, written: Vec::new() }
    }

    /// Shows one object, or the end.
    fn show(&mut self, given: Given<'_>) -> Result<(), Error> {
        self.meta.set("seq_num", self.shown);
        let seq = self.seq.address();
        self.meta.set("seq", seq);
        let meta = self.meta.address();
        let word = |argument: &Argument| match argument {
            Argument::Structure("bpf_iter_meta") => meta,
            Argument::Structure(_) => given.object,
            Argument::Key => given.key,
            Argument::Value => given.value,
            Argument::User => given.user.into(),
            Argument::Bucket => 0,
        };
        let mut words: Vec<u64> = self.layout.arguments.iter().map(word).collect();
        let context = words.as_mut_ptr().expose_provenance() as u64;
        for _ in 0..ATTEMPTS {
            self.effects.begin();
            if let Some(output) = &mut self.effects.seq {
                **output = SeqOutput { shown: given.spans.to_vec(), ..SeqOutput::default() };
            }
            let effects = (&raw mut self.effects).expose_provenance() as u64;
            // SAFETY: the words lead to structures with the layout of the types that the program was verified for,
            // which live until the end of this call, and to an element of which `may_iterate` has compared the sizes
            // and rights with what the program uses; its memory lives until the end of the walk's read section.
            let result = unsafe { self.program.call(Call::on_context(self.engine, context, effects))? };
            let output = self.effects.seq.as_deref_mut().map(std::mem::take).unwrap_or_default();
            if result as u32 == 1 {
                continue;
            }
            if output.overflown {
                return Err(self.program.fault(IterateFault::ObjectTooLong));
            }
            if output.bytes.len() > MOST - self.written.len() {
                return Err(self.program.fault(IterateFault::TooLong));
            }
            self.written.extend_from_slice(&output.bytes);
            self.shown += 1;
            return Ok(());
        }
        Err(self.program.fault(IterateFault::Again))
    }

    fn elements(&mut self, map: &Map, shown: &ShownMap) -> Result<(), Error> {
        let mut structure = shown.structure(self.layout);
        let (span, key_size, value_size) = (structure.span(), map.def().key_size, map.host_value_size());
        let object = span.0;
        let mut copy = vec![0u64; value_size.div_ceil(8).max(1)];
        let per_cpu = map.kind().is_per_cpu();
        let mut outcome = Ok(());
        let section = self.program.shared().domain.enter()?;
        let mut visit = |key: *const u8, value: *mut u8| {
            let mut value = value.expose_provenance() as u64;
            if per_cpu {
                // SAFETY: the key is readable for as many bytes as keys of the map have, and does not change.
                let key = unsafe { std::slice::from_raw_parts(key, map.def().key_size as usize) };
                match map.lookup_into(key, bytes_of(&mut copy, value_size)) {
                    Ok(true) => value = copy.as_mut_ptr().expose_provenance() as u64,
                    _ => return true, // it was deleted a moment ago
                }
            }
            let key = key.expose_provenance() as u64;
            let spans = [span, (key, key_size as usize), (value, value_size)];
            outcome = self.show(Given { object, key, value, user: 0, spans: &spans });
            outcome.is_ok()
        };
        // SAFETY: the section is one of the map's own domain, which `may_iterate` has checked, and gives the number.
        unsafe { map.for_each_ptr(section.number(), &mut visit) };
        drop(section);
        outcome?;
        self.show(Given { object, spans: &[span], ..Given::default() })
    }
}

/// The first bytes of words.
fn bytes_of(words: &mut [u64], bytes: usize) -> &mut [u8] {
    let bytes = bytes.min(size_of_val(words));
    // SAFETY: numbers have no padding, any bytes are numbers, and there are as many; the borrow is passed on.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), bytes) }
}
