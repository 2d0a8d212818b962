//! Changes of the elements of maps of maps.

use super::{Dispatch, Removed, Shape, leads_to_programs};
use crate::error::Error;
use crate::image::takes_part;
use skep_maps::{Map, MapError};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

impl Dispatch {
    /// The map of a key.
    pub(crate) fn map_at(&self, outer: &Map, key: &[u8]) -> Option<Arc<Map>> {
        self.lock().array(outer)?.maps.get(key).cloned()
    }

    /// Sets or removes the map of a key; the new one fits the template of the outer map. Returns the old map.
    ///
    /// If all elements of a table wait for readers, it waits for them, but not under the lock.
    pub(crate) fn set_map(
        self: &Arc<Self>,
        outer: &Map,
        key: &[u8],
        inner: Option<&Arc<Map>>,
    ) -> Result<Option<Arc<Map>>, Error> {
        const TURNS: u32 = 64;
        if let Some(inner) = inner {
            self.holders.add(inner); // before a program can find it
        }
        for _ in 0..TURNS {
            match self.try_set_map(outer, key, inner) {
                Err(Error::Map(MapError::NoMemory { .. })) => thread::sleep(Duration::from_micros(50)),
                result => return result,
            }
        }
        self.try_set_map(outer, key, inner)
    }

    fn try_set_map(
        self: &Arc<Self>,
        outer: &Map,
        key: &[u8],
        inner: Option<&Arc<Map>>,
    ) -> Result<Option<Arc<Map>>, Error> {
        let foreign = |map: &Map| Error::OtherRuntime { map: map.name().to_owned() };
        let none = Arc::from("");
        let layouts = outer.object_layouts().unwrap_or(&none);
        let fits = |map: &Map| {
            map.fits(&self.domain) && map.keep_objects(&self.objects, &self.domain, layouts).is_ok()
        };
        if let Some(inner) = inner.filter(|inner| !fits(inner)) {
            return Err(foreign(inner));
        }
        let mut state = self.lock();
        if let Some(inner) = inner
            && takes_part(inner)
            && state.array(inner).is_none()
        {
            return Err(foreign(inner));
        }
        // If no program has agreed with the outer map yet, the inner ones decide.
        let inner_shape = inner.and_then(|inner| state.shape(inner));
        let agreed = inner.filter(|_| leads_to_programs(outer)).zip(state.shape(outer).or(inner_shape));
        let wrong = |inner: &Map, shape: Shape, other: Shape| Error::WrongPrograms {
            map: outer.name().to_owned(),
            inner: inner.name().to_owned(),
            expected: shape.describe(),
            given: other.describe(),
        };
        if let Some((inner, shape)) = agreed {
            state.may_agree(inner, shape).map_err(|other| wrong(inner, shape, other))?;
            state.may_agree(outer, shape).map_err(|other| wrong(inner, other, shape))?;
        }
        if state.array(outer).is_none() {
            return Err(foreign(outer));
        }
        // SAFETY: a map that fits the template, kept alive by the element, and after that by `Retired`.
        unsafe { outer.set_reference(key, inner.map_or(0, |inner| inner.link().handle))? };
        // Nothing fails from here on: otherwise the agreement would stay in the inner array.
        if let Some((inner, shape)) = agreed {
            state.agree(inner, shape).map_err(|other| wrong(inner, shape, other))?;
            state.agree(outer, shape).map_err(|other| wrong(inner, other, shape))?;
        }
        if let Some(array) = inner.and_then(|inner| state.array(inner)) {
            array.outer += 1;
        }
        let array = state.array(outer).ok_or_else(|| foreign(outer))?;
        let old = match inner {
            Some(inner) => array.maps.insert(key.into(), Arc::clone(inner)),
            None => array.maps.remove(key),
        };
        let mut leaving = state.left(&old.iter().map(|map| super::key(map)).collect::<Vec<_>>());
        leaving.extend(state.leave(super::key(outer)));
        let removed = Removed { maps: old.iter().cloned().collect(), ..Removed::default() };
        self.retired.hold(&removed);
        drop(state);
        self.forget_later(leaving);
        self.retire(removed);
        Ok(old)
    }
}
