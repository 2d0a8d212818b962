//! The running example: a host that loads programs, runs them, and frees some.
//!
//! A generator with a fixed seed decides which programs are freed and loaded. After each step the example waits for
//! the keeper to finish. So the packs look the same in nearly every run except for their addresses, unless placement
//! is random. Machine code names what is near by a shorter instruction than what is far, and the system decides anew in
//! each run which maps are near.

use super::Show;
use super::snapshot::{Example, Name, Snapshot};
use crate::failure::Failure;
use crate::verify::hex;
use skep::abi::Context;
use skep::{Map, Module, Object, Packet, Program, Runtime, text};
use std::collections::BTreeMap;
use std::sync::Arc;

/// skep's own examples.
const EXAMPLES: [(&str, &[u8]); 8] = [
    ("balancer", include_bytes!("../../../../examples/balancer.bpf.o")),
    ("firewall", include_bytes!("../../../../examples/firewall.bpf.o")),
    ("flows", include_bytes!("../../../../examples/flows.bpf.o")),
    ("hello", include_bytes!("../../../../examples/hello.bpf.o")),
    ("raw", include_bytes!("../../../../examples/raw.bpf.o")),
    ("remark", include_bytes!("../../../../examples/remark.bpf.o")),
    ("socket_filter", include_bytes!("../../../../examples/socket_filter.bpf.o")),
    ("unvlan", include_bytes!("../../../../examples/unvlan.bpf.o")),
];
/// Number of threads that run the programs, and of runs of each program by each thread.
const THREADS: usize = 2;
const RUNS: usize = 16;
/// One module in that many is freed: in each round of churn, at the end to leave holes, and at last under the
/// reader.
const CHURN: usize = 4;
const HOLES: usize = 8;
const WAITING: usize = 16;
/// Size of the draft that is open when the snapshot is taken, in bytes of code.
const DRAFT: usize = 6 << 10;

/// Runs the example and takes a snapshot.
pub(crate) fn run(args: &Show) -> Result<Snapshot, Failure> {
    let mut host = Host::new(args)?;
    // Mix the objects, as in a real host.
    let mut order: Vec<usize> =
        (0..host.kinds.len()).flat_map(|kind| vec![kind; args.copies as usize]).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, host.chance.below(last + 1));
    }
    for kind in order {
        host.load(kind)?;
    }
    host.run()?;
    for _ in 0..args.churn {
        let freed = host.free(host.modules.len() / CHURN)?;
        for _ in 0..freed {
            let kind = host.chance.below(host.kinds.len());
            host.load(kind)?;
        }
    }
    host.picture(args)
}

struct Host {
    runtime: Runtime,
    kinds: Vec<Kind>,
    modules: Vec<Module>,
    chance: Chance,
    example: Example,
}

/// An object, and the maps that all its copies share: only code is shown here.
struct Kind {
    path: String,
    object: Object,
    maps: BTreeMap<String, Arc<Map>>,
    data_len: u32,
}

impl Host {
    fn new(args: &Show) -> Result<Self, Failure> {
        let mut config = text::Config::new().huge(!args.no_huge).random(args.random);
        if let Some(kind) = args.backing {
            config = config.backing(kind.backing());
        }
        let kinds = objects(args)?;
        let example = Example {
            objects: kinds.iter().map(|kind| kind.path.clone()).collect(),
            copies: args.copies,
            churn: args.churn,
            threads: THREADS,
            ..Example::default()
        };
        // Text that examples print is discarded.
        let runtime = Runtime::builder().code(config).log(|_, _| {}).build()?;
        Ok(Self { runtime, kinds, modules: Vec::new(), chance: Chance(1), example })
    }

    fn load(&mut self, kind: usize) -> Result<(), Failure> {
        let Kind { path, object, maps, data_len } = &mut self.kinds[kind];
        let linker = self.runtime.linker(object).buffer_len(*data_len);
        let linker = maps.iter().fold(linker, |linker, (name, map)| linker.map(name, Arc::clone(map)));
        let module = linker.load().map_err(|error| Failure::Refused(format!("{path}: {error}")))?;
        if maps.is_empty() {
            maps.extend(module.maps().iter().map(|map| (map.def().name.clone(), Arc::clone(map))));
        }
        self.modules.push(module);
        // A pack that is being promoted to a huge page takes no programs, so they could end up in another pack.
        self.settle()
    }

    /// Runs every program several times on each of several threads.
    fn run(&mut self) -> Result<(), Failure> {
        let (modules, data_len) = (&self.modules, self.kinds[0].data_len);
        let one = || -> Result<u64, skep::Error> {
            let mut runs = 0;
            for program in modules.iter().flat_map(|module| module.programs()) {
                runs += run_some(program, data_len)?;
            }
            Ok(runs)
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        for result in results {
            let result =
                result.map_err(|_| Failure::Refused("a thread that ran programs panicked".into()))?;
            self.example.runs += result?;
        }
        Ok(())
    }

    /// Frees one module in `share`, waits until their memory is free, and returns how many were freed.
    fn free(&mut self, count: usize) -> Result<usize, Failure> {
        for _ in 0..count {
            let which = self.chance.below(self.modules.len());
            self.example.freed += self.modules.swap_remove(which).programs().len();
        }
        self.runtime.arena().flush().map_err(|error| Failure::Refused(error.to_string()))?;
        self.settle()?;
        Ok(count)
    }

    /// Waits until the keeper is idle.
    fn settle(&self) -> Result<(), Failure> {
        self.runtime.arena().domain().barrier().map_err(|error| Failure::Refused(error.to_string()))
    }

    fn picture(mut self, args: &Show) -> Result<Snapshot, Failure> {
        let refused = |error: &dyn std::error::Error| Failure::Refused(error.to_string());
        let arena = self.runtime.arena().clone();
        if args.churn > 0 {
            self.free(self.modules.len() / HOLES)?;
        }
        if args.promote {
            // The occupancy says why not.
            self.example.promoted = Some(arena.promote().is_ok());
        }
        let draft = arena.draft(DRAFT).map_err(|error| refused(&error))?;
        let reader = arena.domain().enter().map_err(|error| refused(&error))?;
        let mut names = BTreeMap::new();
        if args.churn > 0 {
            for _ in 0..self.modules.len().div_ceil(WAITING) {
                let which = self.chance.below(self.modules.len());
                let module = self.modules.swap_remove(which);
                self.example.waiting += module.programs().len();
                names.extend(module.programs().iter().map(|program| named(program, true)));
            }
        }
        names.extend(
            self.modules.iter().flat_map(|module| module.programs()).map(|program| named(program, false)),
        );
        let snapshot = Snapshot::new(self.example, &arena.occupancy(), &arena.map(), &names);
        drop(reader);
        drop(draft);
        Ok(snapshot)
    }
}

fn objects(args: &Show) -> Result<Vec<Kind>, Failure> {
    let data_len = args.data_len;
    let kind = |path: String, object| Kind { path, object, maps: BTreeMap::new(), data_len };
    if args.objects.is_empty() {
        return EXAMPLES
            .iter()
            .map(|(name, bytes)| Ok(kind((*name).to_owned(), Object::parse(bytes)?)))
            .collect();
    }
    args.objects
        .iter()
        .map(|path| {
            let shown = path.display().to_string();
            let bytes = std::fs::read(path)
                .map_err(|source| Failure::Refused(format!("cannot read {shown}: {source}")))?;
            let object =
                Object::parse(&bytes).map_err(|error| Failure::Refused(format!("{shown}: {error}")))?;
            if object.programs().is_empty() {
                return Err(Failure::Refused(format!("{shown}: there is no program in the object")));
            }
            Ok(kind(shown, object))
        })
        .collect()
}

fn run_some(program: &Program, data_len: u32) -> Result<u64, skep::Error> {
    match program.program_type().context {
        Context::Buffer => {
            let mut buffer = vec![0; data_len as usize];
            for _ in 0..RUNS {
                program.run_raw(&mut buffer)?;
            }
        }
        _ => {
            // An Ethernet frame with an unknown protocol.
            let mut packet = Packet::new(&[0; 64]);
            for _ in 0..RUNS {
                program.run(&mut packet)?;
            }
        }
    }
    Ok(RUNS as u64)
}

fn named(program: &Program, freed: bool) -> (usize, Name) {
    let text = program.compiled().text();
    let name = Name {
        program: program.name().to_owned(),
        tag: hex(&program.verified().tag()),
        code_bytes: text.len(),
        freed,
    };
    (text.address(), name)
}

/// Pseudo-random numbers with a fixed seed: the 64-bit generator of Marsaglia, "Xorshift RNGs" (2003).
struct Chance(u64);

impl Chance {
    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % end as u64) as usize
    }
}
