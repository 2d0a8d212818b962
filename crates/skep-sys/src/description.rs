//! What the kernel tells of an object in `/proc/PID/fdinfo`: lines of names and values.

use crate::engine::{Engine, Place};
use crate::links::LinkObject;
use crate::maps::MapObject;
use crate::object::Object;
use crate::programs::ProgramObject;
use crate::system::System;
use alloc::format;
use alloc::string::String;

impl<E: Engine> System<E> {
    /// The lines that follow those which every open file has; none for statistics.
    pub fn description(&self, object: &Object<E>) -> String {
        match object {
            Object::Map(map) => self.of_map(map),
            Object::Program(program) => self.of_program(program),
            Object::Link(link) => of_link(link),
            Object::Btf(btf) => format!("btf_id:\t{}\n", btf.id()),
            Object::Stats(_) => String::new(),
        }
    }

    fn of_map(&self, map: &MapObject<E>) -> String {
        let create = map.create();
        format!(
            "map_type:\t{}\nkey_size:\t{}\nvalue_size:\t{}\nmax_entries:\t{}\nmap_flags:\t{:#x}\n\
             map_extra:\t{:#x}\nmemlock:\t{}\nmap_id:\t{}\nfrozen:\t{}\n",
            create.map_type,
            create.key_size,
            create.value_size,
            create.max_entries,
            create.map_flags,
            create.map_extra,
            self.engine().map_memory(map.map()),
            map.id(),
            u8::from(map.is_frozen()),
        )
    }

    fn of_program(&self, program: &ProgramObject<E>) -> String {
        let facts = self.engine().facts(program.program());
        let tag: String = facts.tag.iter().map(|byte| format!("{byte:02x}")).collect();
        // Memory of programs is locked in whole pages.
        let locked = facts.translated.len().next_multiple_of(4096);
        format!(
            "prog_type:\t{}\nprog_jited:\t{}\nprog_tag:\t{tag}\nmemlock:\t{locked}\nprog_id:\t{}\n\
             run_time_ns:\t{}\nrun_cnt:\t{}\nrecursion_misses:\t{}\nverified_insns:\t{}\n",
            program.program_type(),
            u8::from(facts.compiled != 0),
            program.id(),
            facts.run_time,
            facts.run_count,
            facts.misses,
            facts.verified,
        )
    }
}

fn of_link<E: Engine>(link: &LinkObject<E>) -> String {
    let mut lines = format!("link_id:\t{}\nprog_id:\t{}\n", link.id(), link.program_id());
    if let Place::Iterator { target, map } = link.place() {
        lines.push_str(&format!("target_name:\t{target}\n"));
        if *map != 0 {
            lines.push_str(&format!("map_id:\t{map}\n"));
        }
    }
    lines
}
