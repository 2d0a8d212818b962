//! The maps of a run in checking mode: the program's own, by index, and those found in maps of maps, by the index
//! of the outer map with the bit [`INNER_MAP`].

use skep_abi::{MapDef, MapKind};
use skep_verifier::INNER_MAP;

use crate::code::Code;

/// The maps of one run.
pub(crate) struct Maps<'a> {
    code: &'a Code,
    /// The maps found, with their numbers.
    found: Vec<(u64, u32)>,
}

impl<'a> Maps<'a> {
    pub(crate) fn new(code: &'a Code) -> Self {
        Self { code, found: Vec::new() }
    }

    /// The numbers and definitions of the map behind a handle: the same map may be the program's own and also in
    /// other maps.
    pub(crate) fn of(&self, handle: u64) -> Vec<(u32, &'a MapDef)> {
        let maps = &self.code.parts.maps;
        // A host may pass one map for several of a program's.
        let own = self.code.linkage.maps.iter().zip(maps.iter()).enumerate();
        let own = own.filter(|(_, (link, _))| link.handle == handle);
        let own = own.map(|(index, (_, def))| (index as u32, def));
        let found = self.found.iter().filter(|(found, _)| *found == handle);
        let found = found.filter_map(|(_, number)| {
            let outer = maps.get((number & !INNER_MAP) as usize)?;
            Some((*number, outer.inner.as_deref()?))
        });
        own.chain(found).collect()
    }

    /// A look-up returned a value; records it if it is a map.
    pub(crate) fn find(&mut self, outer: u32, def: &MapDef, found: u64) -> bool {
        if !matches!(def.kind, MapKind::ArrayOfMaps | MapKind::HashOfMaps) {
            return false;
        }
        let found = (found, outer | INNER_MAP);
        if !self.found.contains(&found) {
            self.found.push(found);
        }
        true
    }
}
