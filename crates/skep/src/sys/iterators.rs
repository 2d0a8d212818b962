//! Programs of iterators that clients load: what they are for, and what they are shown.

use super::{SysEngine, errno};
use crate::error::{Error, IterateFault};
use crate::iterate::{Iterate, ShownLink, ShownMap, ShownProgram};
use skep_abi::{Native, ProgramType};
use skep_btf::{Btf, Kind};
use skep_sys::{Engine, Errno, LinkObject, MapObject, ProgramObject, Shown};

/// What a program is attached to, by the number of a function of the kernel's types; `None` for types of programs that
/// are not run on what an iterator shows.
pub(super) fn target(kind: &ProgramType, host: Option<&Btf>, id: u32) -> Result<Option<String>, String> {
    if kind.native != Some(Native::Iterator) {
        return Ok(None);
    }
    if id == 0 {
        return Err("Tracing programs must provide btf_id".to_owned());
    }
    let Some(host) = host else {
        return Err(
            "iterators need the kernel's types, which were not given (skep exec --btf FILE)".to_owned()
        );
    };
    let function = host.ty(id).ok().filter(|ty| ty.kind == Kind::Func).and_then(|ty| ty.name().ok());
    let target = function.and_then(|name| name.strip_prefix("bpf_iter_"));
    match target {
        Some(target) => Ok(Some(target.to_owned())),
        None => Err(format!("attach_btf_id {id} is not a function of an iterator")),
    }
}

impl SysEngine {
    /// Passes on what a program may be shown.
    pub(super) fn with_shown<T>(
        &self,
        shown: &Shown<'_, Self>,
        use_it: impl FnOnce(Iterate<'_>) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        let result = match shown {
            Shown::Elements(map) => {
                let shown = of_map(map, 0);
                use_it(Iterate::Elements { map: map.map().map(), shown: &shown })
            }
            Shown::Maps(maps) => {
                // The list that is walked holds each of them too.
                let all: Vec<_> = maps.iter().map(|map| of_map(map, held(map))).collect();
                use_it(Iterate::Maps(&all))
            }
            Shown::Programs(programs) => {
                let all: Vec<_> = programs.iter().map(|program| self.of_program(program)).collect();
                use_it(Iterate::Programs(&all))
            }
            Shown::Links(links) => {
                let all: Vec<_> = links.iter().map(|link| self.of_link(link)).collect();
                use_it(Iterate::Links(&all))
            }
            Shown::OfEngine => {
                let machine = self.world().map(crate::world::World::machine);
                use_it(Iterate::Sockets(machine.as_ref().map_or(&[], |machine| machine.sockets())))
            }
        };
        // As after a run.
        self.runtime().release_cpu();
        result.map_err(|error| refusal(&error))
    }

    fn of_program(&self, program: &ProgramObject<Self>) -> ShownProgram {
        ShownProgram {
            id: program.id(),
            name: program.name().to_owned(),
            program_type: program.program_type(),
            expected_attach_type: program.expected_attach_type(),
            tag: self.facts(program.program()).tag,
            attach_btf_id: program.attached_to().1,
        }
    }

    fn of_link(&self, link: &LinkObject<Self>) -> ShownLink {
        ShownLink { id: link.id(), link_type: link.kind(), program: self.of_program(&link.program()) }
    }
}

/// How many things hold a map, without one list.
fn held(map: &std::sync::Arc<MapObject<SysEngine>>) -> u64 {
    (std::sync::Arc::strong_count(map) as u64).saturating_sub(1)
}

fn of_map(map: &MapObject<SysEngine>, references: u64) -> ShownMap {
    let (key_size, value_size, max_entries) = map.sizes();
    let uses = u64::from(map.uses());
    ShownMap {
        id: map.id(),
        name: map.name().to_owned(),
        map_type: map.kind(),
        key_size,
        value_size,
        max_entries,
        map_flags: map.flags(),
        map_extra: map.extra(),
        references: references.max(uses),
        uses,
    }
}

fn refusal(error: &Error) -> Errno {
    match error {
        Error::Iterate { fault, .. } => match fault {
            IterateFault::Size { .. } | IterateFault::Rights { .. } => Errno::EACCES,
            IterateFault::ObjectTooLong | IterateFault::TooLong => Errno::E2BIG,
            IterateFault::Again => Errno::EAGAIN,
            _ => Errno::EINVAL,
        },
        other => errno(other),
    }
}
