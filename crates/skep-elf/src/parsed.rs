//! One object file, read and checked as a whole: all that its programs share when they are linked.

use std::collections::HashMap;
use std::sync::Arc;

use skep_btf::Btf;

use crate::elf::Elf;
use crate::error::Error;
use crate::externs::Externs;
use crate::functions::{self, Functions, Members};
use crate::maps::{self, ObjectMap};
use crate::records::Records;
use crate::types;

/// A checked file. Its maps are kept elsewhere, since the user may change them.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) elf: Elf,
    pub(crate) btf: Option<Arc<Btf>>,
    pub(crate) ext: Option<Records>,
    /// By section.
    pub(crate) roles: Vec<Role>,
    /// The declared maps, by the section and the byte in it where the declaration begins.
    pub(crate) map_places: HashMap<(usize, u64), usize>,
    pub(crate) functions: Functions,
    /// By function: what its exceptions end in.
    pub(crate) exception_callbacks: HashMap<usize, Vec<usize>>,
    /// Which members of structures the functions are.
    pub(crate) members: Members,
    pub(crate) externs: Externs,
    /// The map of configuration values, if there are any.
    pub(crate) config_map: Option<u32>,
    /// The contents of the section `license`.
    pub(crate) license: String,
}

/// What a section is to programs that refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Declarations of maps.
    Maps,
    /// The value of the map of this index.
    Data(u32),
    /// Variables at the start of the arena of this index.
    Arena(u32),
    /// Code, or nothing that is loaded.
    Other,
}

impl Parsed {
    /// Reads a file. Also returns its maps: those declared, then those of global variables, then that of
    /// configuration values.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, Vec<ObjectMap>), Error> {
        let elf = Elf::parse(bytes)?;
        let btf = types::types(&elf)?;
        let btf_ref = btf.as_deref();
        let ext = btf_ref.map(|btf| Records::parse(&elf, btf)).transpose()?.flatten();
        let functions = Functions::parse(&elf)?;
        let mut roles = vec![Role::Other; elf.sections.len()];
        let mut object_maps = Vec::new();
        let mut map_places = HashMap::new();
        if let Some(section) = elf.section(maps::SECTION) {
            roles[section] = Role::Maps;
            for declared in maps::declared(&elf, btf_ref, &functions, section)? {
                map_places.insert((section, declared.range.start), object_maps.len());
                object_maps.push(declared.map);
            }
        }
        for (index, section) in elf.sections.iter().enumerate() {
            if maps::is_legacy(section) {
                roles[index] = Role::Maps;
                for (map, place) in maps::legacy(&elf, index)? {
                    map_places.insert((index, place.start), object_maps.len());
                    object_maps.push(map);
                }
            }
            if maps::is_arena_data(section) {
                roles[index] = Role::Arena(maps::place_in_arena(&elf, index, &mut object_maps)?);
            } else if maps::is_data(section) {
                // Fits: there are fewer sections than bytes in the file, and a section number has 32 bits.
                roles[index] = Role::Data(object_maps.len() as u32);
                object_maps.push(maps::of_section(&elf, index)?);
            }
        }
        let map_of = |section: usize| match roles[section] {
            Role::Data(map) | Role::Arena(map) => Some(map as usize),
            _ => None,
        };
        maps::set_variables(&elf, btf_ref, map_of, &mut object_maps)?;
        let externs = Externs::parse(&elf, btf_ref)?;
        let exception_callbacks = functions::exception_callbacks(&elf, btf_ref, &functions)?;
        let members = Members::parse(&elf, btf_ref)?;
        let config_map = externs.config_map().map(|map| {
            object_maps.push(map);
            object_maps.len() as u32 - 1
        });
        let license = license(&elf);
        let parsed = Self {
            elf,
            btf,
            ext,
            roles,
            map_places,
            functions,
            exception_callbacks,
            members,
            externs,
            config_map,
            license,
        };
        Ok((parsed, object_maps))
    }

    /// The map whose declaration starts at a byte of a section.
    pub(crate) fn map_at(&self, section: usize, address: u64) -> Option<usize> {
        self.map_places.get(&(section, address)).copied()
    }

    /// Whether its programs may call helpers that are for GPL-compatible programs.
    pub(crate) fn gpl_compatible(&self) -> bool {
        is_gpl_compatible(&self.license)
    }
}

fn license(elf: &Elf) -> String {
    let bytes = elf.section("license").map_or(&[][..], |section| elf.data(section));
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The licences that Linux counts as compatible (`license_is_gpl_compatible`, documented with
/// `MODULE_LICENSE`).
fn is_gpl_compatible(license: &str) -> bool {
    matches!(
        license,
        "GPL" | "GPL v2" | "GPL and additional rights" | "Dual BSD/GPL" | "Dual MIT/GPL" | "Dual MPL/GPL"
    )
}
