//! The entry contract of a program array holds for as long as a run may reach the array.

use crate::kit::{ENGINES, object};
use crate::lifetime::settled;
use skep::abi::{MapDef, MapKind, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Error, Module, Object, Program, ProgramArray, Runtime};
use std::cell::RefCell;
use std::sync::Arc;

/// What the host does in the middle of a run, and the resulting error.
type Act = Box<dyn FnOnce() -> Option<Error>>;

thread_local! {
    static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
    static MET: RefCell<Option<Error>> = const { RefCell::new(None) };
}

fn act() {
    if let Some(act) = ACT.take() {
        MET.set(act());
    }
}

/// A runtime whose programs let the host act, and a program array without an entry contract.
struct Scene {
    runtime: Runtime,
    def: MapDef,
}

/// Makes a tail call through the array found under the key 0, after the host has acted.
const FINDS: &str = "r6 = r1
    r4 = 0
    *(u32 *)(r10 - 4) = r4
    r2 = r10
    r2 += -4
    r1 = map[0] ll
    call 1
    if r0 == 0 goto out
    r7 = r0
    call 1000
    r1 = r6
    r2 = r7
    r3 = 1
    call 12
    out:
    r0 = 7
    exit";

impl Scene {
    fn new() -> Self {
        let runtime = Runtime::builder().function(1000, "act", act).build().unwrap();
        Self { runtime, def: MapDef::new("programs", MapKind::ProgArray, 4, 4, 2) }
    }

    fn module(&self, text: &str, def: &MapDef, len: u32) -> Module {
        self.runtime.linker(&object("one", text, def)).buffer_len(len).load().unwrap()
    }

    /// An array to which only the returned handle refers.
    fn array(&self) -> ProgramArray {
        self.module("r0 = 0\nexit", &self.def, 0).program_array("programs").unwrap().clone()
    }

    /// A program that refers to the array.
    fn names(&self, array: &ProgramArray, len: u32) -> Result<Program, Error> {
        let object = object("names", "r2 = map[0] ll\nr3 = 0\ncall 12\nr0 = 7\nexit", &self.def);
        let linker = self.runtime.linker(&object).buffer_len(len);
        Ok(linker.map("programs", Arc::clone(array.map())).load()?.programs()[0].clone())
    }

    /// A program that takes a buffer of 4096 bytes.
    fn long(&self) -> Program {
        self.module("r0 = 666\nexit", &self.def, 4096).programs()[0].clone()
    }

    fn outer(&self, kind: MapKind) -> Module {
        let inner = Some(Box::new(self.def.clone()));
        let def = MapDef { inner, ..MapDef::new("outer", kind, 4, 4, 2) };
        let bytes = encode_bytes(&assemble(FINDS).unwrap()).unwrap();
        let object = Object::from_bytecode_and_maps("finds", &RAW, &bytes, vec![def]).unwrap();
        self.runtime.linker(&object).load().unwrap()
    }
}

/// Runs a program over an empty buffer, while the host acts.
fn run(program: &Program, engine: Engine, act: impl FnOnce() -> Option<Error> + 'static) -> (u64, String) {
    ACT.set(Some(Box::new(act)));
    let result = program.run_raw_with(engine, &mut []).unwrap();
    assert!(ACT.take().is_none(), "the program did not come to the host");
    (result, MET.take().map_or(String::new(), |error| error.to_string()))
}

fn assert_refused((result, error): (u64, String), how: &str) {
    assert!(error.contains("0 bytes") && error.contains("4096 bytes"), "{how}: {error:?}");
    assert_eq!(result, 7, "{how}: it falls through");
}

#[test]
fn a_found_array_keeps_its_contract_after_its_owners_are_gone() {
    for (engine, kind) in ENGINES
        .into_iter()
        .flat_map(|engine| [MapKind::ArrayOfMaps, MapKind::HashOfMaps].map(|kind| (engine, kind)))
    {
        let scene = Scene::new();
        let (array, long, module) = (scene.array(), scene.long(), scene.outer(kind));
        let outer = (module.map_array("outer").cloned(), module.map_hash("outer").cloned());
        match &outer {
            (Some(outer), _) => drop(outer.set(0, array.map()).unwrap()),
            (_, Some(outer)) => drop(outer.set(&[0; 4], array.map()).unwrap()),
            _ => unreachable!("the module has one of them"),
        }
        let last = scene.names(&array, 0).unwrap();
        let (given, put) = (array.clone(), long.clone());
        let met = run(&module.programs()[0], engine, move || {
            match &outer {
                (Some(outer), _) => drop(outer.remove(0).unwrap()),
                (_, Some(outer)) => drop(outer.remove(&[0; 4]).unwrap()),
                _ => unreachable!("the module has one of them"),
            }
            drop(last);
            given.set(1, &put).err()
        });
        assert_refused(met, &format!("{engine:?}, {kind}"));
        // After the run the array is free for another contract.
        settled(&scene.runtime);
        assert!(array.set(1, &long).unwrap().is_none());
    }
}

#[test]
fn a_found_array_keeps_its_contract_in_any_drop_order() {
    for engine in ENGINES {
        for element_first in [false, true] {
            let scene = Scene::new();
            let (array, module) = (scene.array(), scene.outer(MapKind::ArrayOfMaps));
            let outer = module.map_array("outer").unwrap().clone();
            outer.set(0, array.map()).unwrap();
            let target = scene.module("r0 = 5\nexit", &scene.def, 0).programs()[0].clone();
            array.set(1, &target).unwrap();
            let (given, other) = (array.clone(), scene.runtime.clone());
            let def = scene.def.clone();
            // By a program that refers to it, and would make tail calls with a longer buffer.
            let met = run(&module.programs()[0], engine, move || {
                if element_first {
                    given.remove(1).unwrap();
                    outer.remove(0).unwrap();
                } else {
                    outer.remove(0).unwrap();
                    given.remove(1).unwrap();
                }
                Scene { runtime: other, def }.names(&given, 4096).err()
            });
            assert_refused(met, &format!("{engine:?}, {element_first}"));
            settled(&scene.runtime);
            scene.names(&array, 4096).unwrap();
        }
    }
}

#[test]
fn a_running_program_without_handles_keeps_its_arrays_contract() {
    for engine in ENGINES {
        let scene = Scene::new();
        let (hub, array, long) = (scene.array(), scene.array(), scene.long());
        let text = "r6 = r1\ncall 1000\nr1 = r6\nr2 = map[0] ll\nr3 = 1\ncall 12\nr0 = 7\nexit";
        let inside = object("inside", text, &scene.def);
        let linker = scene.runtime.linker(&inside).map("programs", Arc::clone(array.map()));
        hub.set(0, &linker.load().unwrap().programs()[0]).unwrap();
        let main = scene.names(&hub, 0).unwrap();
        let (given, put) = (array.clone(), long.clone());
        let met = run(&main, engine, move || {
            drop(hub.remove(0).unwrap());
            given.set(1, &put).err()
        });
        assert_refused(met, &format!("{engine:?}"));
        settled(&scene.runtime);
        array.set(1, &long).unwrap();
    }
}

#[test]
fn the_contract_is_forgotten_after_both_grace_periods() {
    let scene = Scene::new();
    let domain = scene.runtime.arena().domain().clone();
    for sleepable in [false, true] {
        let (array, long) = (scene.array(), scene.long());
        let sleeps = sleepable.then(|| domain.enter_sleepable().unwrap());
        let reads = (!sleepable).then(|| domain.enter().unwrap());
        drop(scene.names(&array, 0).unwrap());
        let other = if sleepable { skep_rcu::Grace::Normal } else { skep_rcu::Grace::Sleepable };
        domain.synchronize(other).unwrap();
        assert!(array.set(0, &long).is_err(), "a section may hold it, sleepable: {sleepable}");
        drop((sleeps, reads));
        settled(&scene.runtime);
        array.set(0, &long).unwrap();
    }
}

#[test]
fn a_matching_program_renews_the_contract_meanwhile() {
    let scene = Scene::new();
    let (array, long) = (scene.array(), scene.long());
    let section = scene.runtime.arena().domain().enter().unwrap();
    drop(scene.names(&array, 0).unwrap());
    let again = scene.names(&array, 0).unwrap();
    drop(section);
    settled(&scene.runtime);
    assert!(array.set(0, &long).is_err(), "a program names it");
    drop(again);
    settled(&scene.runtime);
    array.set(0, &long).unwrap();
}

#[test]
fn a_refused_program_fixes_no_contract() {
    let scene = Scene::new();
    let (array, long) = (scene.array(), scene.long());
    let short = scene.module("r0 = 5\nexit", &scene.def, 0).programs()[0].clone();
    assert!(array.set(2, &short).is_err(), "beyond the end");
    array.map().freeze().unwrap();
    assert!(array.set(0, &short).is_err(), "frozen");
    let _names = scene.names(&array, 4096).unwrap();
    assert!(long.name() == "one" && scene.names(&array, 0).is_err(), "now it is for 4096 bytes");
}
