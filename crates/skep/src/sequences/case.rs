//! A case: objects, and what a host does with them. Everything in it is a function of a number, and any part can be
//! left out.

use super::definitions::{definition, definitions, similar};
use super::fragments::{Fragment, fragment, program_type, text};
use super::world::EXAMPLE;
use skep_abi::{MapDef, ProgramType};
use skep_testgen::Source;
use std::fmt;

/// An object that is made of definitions and text.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) program_type: &'static ProgramType,
    /// The length of its program's buffer, for which it is written.
    pub(super) buffer: u32,
    pub(super) maps: Vec<MapDef>,
    pub(super) fragments: Vec<Option<Fragment>>,
}

/// What a host does. Numbers choose among what there is then, modulo how many there are.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Load(Load),
    /// Makes a map that belongs to no module; of a runtime's memory, where one is named.
    Create {
        runtime: Option<u32>,
        def: MapDef,
    },
    Run {
        program: u32,
        byte: u8,
    },
    SetMap {
        outer: u32,
        key: u32,
        inner: u32,
    },
    RemoveMap {
        outer: u32,
        key: u32,
    },
    SetProgram {
        array: u32,
        index: u32,
        program: u32,
    },
    RemoveProgram {
        array: u32,
        index: u32,
    },
    Update {
        map: u32,
        key: u32,
        byte: u8,
        flags: u8,
    },
    Delete {
        map: u32,
        key: u32,
    },
    Read {
        map: u32,
        key: u32,
    },
    Batch {
        map: u32,
        what: u8,
    },
    Queue {
        map: u32,
        what: u8,
        byte: u8,
    },
    Freeze {
        map: u32,
    },
    Attach {
        hook: u32,
        program: u32,
    },
    Replace {
        link: u32,
        program: u32,
    },
    Detach {
        link: u32,
    },
    RunHook {
        hook: u32,
        byte: u8,
    },
    /// Keeps a map or program beyond its module.
    KeepMap {
        map: u32,
    },
    KeepProgram {
        program: u32,
    },
    DropModule {
        module: u32,
    },
    DropMap {
        map: u32,
    },
    DropProgram {
        program: u32,
    },
    Synchronize {
        runtime: u32,
    },
    ReleaseCpu {
        runtime: u32,
    },
}

/// A load with everything that is said otherwise than the object says it.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) object: u32,
    pub(super) runtime: u32,
    pub(super) buffer: Option<u32>,
    pub(super) sleepable: bool,
    pub(super) program_type: Option<&'static ProgramType>,
    /// Maps of the object, and their capacities.
    pub(super) entries: Vec<(u32, u32)>,
    /// Maps of the object, and those that there are.
    pub(super) given: Vec<(u32, u32)>,
    /// A variable of it, and its bytes.
    pub(super) variable: Option<(u32, Vec<u8>)>,
}

#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) subjects: Vec<Subject>,
    pub(super) actions: Vec<Option<Action>>,
    /// What programs have the host do while they run.
    pub(super) during: Vec<Option<Action>>,
}

impl Case {
    pub(super) fn from_seed(seed: u64) -> Self {
        let mut source = Source::from_seed(seed);
        let source = &mut source;
        let shared = definitions(source);
        let subjects: Vec<Subject> = (0..source.between(1, 3)).map(|_| subject(source, &shared)).collect();
        // Everything is loaded once, and then used.
        let first = (0..subjects.len() as u32).map(|object| Some(Action::Load(load(source, Some(object)))));
        let mut actions: Vec<_> = first.collect();
        for _ in 0..source.between(4, 24) {
            actions.push(Some(action(source, &shared)));
        }
        actions.push(Some(Action::Run { program: source.below(4), byte: 0 }));
        let during = (0..source.below(6)).map(|_| Some(action(source, &shared))).collect();
        Self { subjects, actions, during }
    }

    /// Its parts that can be left out, in one order.
    fn parts(&mut self) -> impl Iterator<Item = Part<'_>> {
        let fragments = self.subjects.iter_mut().flat_map(|subject| &mut subject.fragments);
        let actions = self.during.iter_mut().chain(&mut self.actions);
        actions.map(Part::Action).chain(fragments.map(Part::Fragment))
    }

    pub(super) fn len(&mut self) -> usize {
        self.parts().count()
    }

    pub(super) fn without(mut self, dropped: &[usize]) -> Self {
        for (number, part) in self.parts().enumerate() {
            match part {
                Part::Action(action) if dropped.contains(&number) => *action = None,
                Part::Fragment(fragment) if dropped.contains(&number) => *fragment = None,
                _ => {}
            }
        }
        self
    }
}

enum Part<'a> {
    Action(&'a mut Option<Action>),
    Fragment(&'a mut Option<Fragment>),
}

impl Subject {
    pub(super) fn text(&self) -> String {
        text(self.fragments.iter().flatten())
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, subject) in self.subjects.iter().enumerate() {
            let program_type = subject.program_type.name;
            writeln!(f, "object {number}: {program_type}, written for a buffer of {} bytes", subject.buffer)?;
            for def in &subject.maps {
                writeln!(f, "  {def:?}")?;
            }
            writeln!(f, "{}", subject.text())?;
        }
        for (what, actions) in [("the host", &self.actions), ("programs have it", &self.during)] {
            writeln!(f, "{what}:")?;
            for (number, action) in actions.iter().enumerate() {
                if let Some(action) = action {
                    writeln!(f, "  {number}: {action:?}")?;
                }
            }
        }
        Ok(())
    }
}

fn subject(source: &mut Source, shared: &[MapDef]) -> Subject {
    let maps = match source.below(4) {
        0 => definitions(source),
        1 => shared.iter().map(|def| MapDef { name: def.name.clone(), ..similar(source, def) }).collect(),
        _ => shared.to_vec(),
    };
    let (kind, buffer) = (program_type(source), source.pick(&[16, 64, 64, 8, 0, 4096]));
    let count = source.pick(&[1, 1, 2, 2, 3, 5]);
    let fragments = (0..count).map(|number| Some(fragment(source, &maps, (kind, buffer), number))).collect();
    Subject { program_type: kind, buffer, maps, fragments }
}

fn load(source: &mut Source, object: Option<u32>) -> Load {
    let some = |source: &mut Source, values: &[u32]| {
        let count = source.pick(&[0, 0, 0, 1, 1, 2]);
        (0..count).map(|_| (source.below(4), source.pick(values))).collect::<Vec<_>>()
    };
    Load {
        object: object.unwrap_or_else(|| match source.chance(1) {
            true => EXAMPLE,
            false => source.below(64),
        }),
        runtime: u32::from(source.chance(8)),
        buffer: source.chance(10).then(|| source.pick(&[0, 8, 16, 64, 13, 4096])),
        sleepable: source.chance(15),
        program_type: source.chance(2).then(|| source.pick(skep_abi::TYPES)),
        entries: match source.chance(25) {
            true => some(source, &[1, 2, 4, 8, 16, 100, 4096, 0, 1 << 20, u32::MAX]),
            false => Vec::new(),
        },
        given: match source.chance(45) {
            true => some(source, &[0, 1, 2, 3, 4, 5, 6, 7, 8]),
            false => Vec::new(),
        },
        variable: source
            .chance(10)
            .then(|| (source.below(64), vec![source.below(256) as u8; source.pick(&[1, 4, 8])])),
    }
}

fn action(source: &mut Source, shared: &[MapDef]) -> Action {
    let key = |source: &mut Source| source.pick(&[0, 0, 0, 1, 1, 2, 3, 4, 7, 15, 16, 99, u32::MAX]);
    let any = |source: &mut Source| source.below(64);
    let byte = |source: &mut Source| source.pick(&[0, 0, 1, 2, 3, 8, 63, 255]);
    match source.below(44) {
        0..=2 => Action::Load(load(source, None)),
        3 | 4 => {
            let runtime = source.chance(85).then(|| u32::from(source.chance(8)));
            // Most are for what holds maps.
            let inner = shared.iter().find_map(|def| def.inner.as_deref()).cloned();
            let mut def = match inner {
                Some(inner) if source.chance(60) => similar(source, &inner),
                _ => match source.chance(50) {
                    true => shared[source.below(shared.len() as u32) as usize].clone(),
                    false => definition(source, "made".into(), 0),
                },
            };
            if source.chance(30) {
                def = similar(source, &def);
            }
            Action::Create { runtime, def }
        }
        5..=12 => Action::Run { program: any(source), byte: byte(source) },
        13..=18 => Action::SetMap { outer: any(source), key: key(source), inner: any(source) },
        19 => Action::RemoveMap { outer: any(source), key: key(source) },
        20..=23 => Action::SetProgram { array: any(source), index: key(source), program: any(source) },
        24 => Action::RemoveProgram { array: any(source), index: key(source) },
        25..=27 => Action::Update {
            map: any(source),
            key: key(source),
            byte: byte(source),
            flags: source.pick(&[0, 0, 0, 1, 2, 4]),
        },
        28 => Action::Delete { map: any(source), key: key(source) },
        29 => Action::Read { map: any(source), key: key(source) },
        30 => Action::Batch { map: any(source), what: byte(source) },
        31 => Action::Queue { map: any(source), what: byte(source), byte: byte(source) },
        32 => Action::Freeze { map: any(source) },
        33 => Action::Attach { hook: u32::from(source.chance(10)), program: any(source) },
        34 => Action::Replace { link: any(source), program: any(source) },
        35 => Action::Detach { link: any(source) },
        36 => Action::RunHook { hook: u32::from(source.chance(10)), byte: byte(source) },
        37 => Action::KeepMap { map: any(source) },
        38 => Action::KeepProgram { program: any(source) },
        39 => Action::DropModule { module: any(source) },
        40 => Action::DropMap { map: any(source) },
        41 => Action::DropProgram { program: any(source) },
        42 => Action::Synchronize { runtime: u32::from(source.chance(8)) },
        _ => Action::ReleaseCpu { runtime: u32::from(source.chance(8)) },
    }
}
