//! A program takes part in the dispatch from its load until it is dropped.

use super::entries::Entries;
use super::{BranchTarget, CallSite, Dispatch, Shape, SiteRef, key, leads_to_programs, wrong_program};
use crate::error::Error;
use crate::image::{Image, takes_part};
use skep_maps::Map;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An image that is connected to a dispatch: the maps that it names, which hold programs or will, know it.
pub(crate) struct Connected {
    image: Image,
    pub(super) hooks: Entries,
    /// How many elements of arrays of programs hold it, and how many of its functions extensions replace: one of them
    /// is 0. Under the dispatch's lock.
    pub(super) in_arrays: AtomicUsize,
    pub(super) extended: AtomicUsize,
    dispatch: Arc<Dispatch>,
}

impl Connected {
    /// Connects an image.
    ///
    /// # Errors
    ///
    /// [`Error::OtherRuntime`] if it names an array of another dispatch; [`Error::WrongProgram`] if its arguments
    /// differ from those of an array's programs; [`Error::Text`] if its code cannot be changed.
    pub(crate) fn new(image: Image, dispatch: &Arc<Dispatch>) -> Result<Arc<Self>, Error> {
        let connected = Arc::new(Self {
            image,
            hooks: Entries::default(),
            in_arrays: AtomicUsize::new(0),
            extended: AtomicUsize::new(0),
            dispatch: Arc::clone(dispatch),
        });
        dispatch.connect(&connected)?;
        Ok(connected)
    }
}

impl Connected {
    /// Elements of arrays that were emptied held these. Under the dispatch's lock.
    pub(super) fn left_arrays<'a>(programs: impl IntoIterator<Item = &'a Arc<Self>>) {
        for program in programs {
            // Relaxed: as everywhere, under the dispatch's lock.
            program.in_arrays.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Deref for Connected {
    type Target = Image;

    #[inline]
    fn deref(&self) -> &Image {
        &self.image
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.dispatch.disconnect(self);
        let arrays = self.uses_arrays();
        // The cycle collector takes these references for the host's until they are gone.
        self.image.maps = BTreeMap::new();
        if arrays {
            self.dispatch.request_collection();
        }
    }
}

impl Dispatch {
    /// Registers a program's sites and its use of arrays; after a failure nothing stays registered.
    fn connect(self: &Arc<Self>, program: &Arc<Connected>) -> Result<(), Error> {
        if !program.uses_arrays() {
            return Ok(());
        }
        let shape = Shape::of(program);
        for map in program.maps().filter(|map| takes_part(map)) {
            let mut state = self.lock();
            if state.array(map).is_none() {
                return Err(Error::OtherRuntime { map: map.name().to_owned() });
            }
            if leads_to_programs(map) {
                state.agree(map, shape).map_err(|agreed| wrong_program(map, program, agreed))?;
            }
            let Some(array) = state.array(map) else { continue };
            array.users.insert(Arc::as_ptr(program).addr(), Arc::downgrade(program));
        }
        let compiled = &program.compiled;
        for (number, site) in compiled.sites().iter().enumerate() {
            let Some(map) = program.map(site.map()) else { continue };
            let own = SiteRef { compiled: Arc::clone(compiled), number };
            let mut state = self.lock();
            let Some(array) = state.array(map) else { continue };
            let slot = array.slots.entry(site.index()).or_default();
            slot.sites.insert(own.key(), CallSite { site: own, target: BranchTarget::Nowhere });
            slot.version += 1;
        }
        for (map, index) in elements(program) {
            self.complete(map, index, compiled)?;
        }
        Ok(())
    }

    /// Removes a program's sites. No thread runs it any more.
    fn disconnect(self: &Arc<Self>, program: &Connected) {
        let compiled = &program.compiled;
        let mut gone = Vec::new();
        for (map, index) in elements(program) {
            let mut state = self.lock();
            let slot = state.array(map).and_then(|array| array.slots.get_mut(&index));
            let Some(slot) = slot else { continue };
            gone.push(slot.take(compiled));
            slot.version += 1;
        }
        // Stubs are texts, whose memory is freed after a grace period anyway.
        drop(gone);
        let mut leaving = Vec::new();
        for map in program.maps().filter(|map| takes_part(map)) {
            let mut state = self.lock();
            if let Some(array) = state.array(map) {
                array.users.remove(&std::ptr::from_ref(program).addr());
            }
            leaving.extend(state.leave(key(map)));
        }
        self.forget_later(leaving);
    }
}

/// The elements that a program's sites name, each once.
fn elements(program: &Image) -> impl Iterator<Item = (&Arc<Map>, u32)> {
    let sites = program.compiled.sites();
    let elements: BTreeSet<_> = sites.iter().map(|site| (site.map(), site.index())).collect();
    elements.into_iter().filter_map(|(map, index)| Some((program.map(map)?, index)))
}
