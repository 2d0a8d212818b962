//! Programs of control groups.
//!
//! A group's programs run for its own sockets and tasks, and for those of the groups in it as far as the flags allow:
//!
//! | flags of a group | its programs, and those of a group in it |
//! |---|---|
//! | none | the group in it may have none |
//! | `BPF_F_ALLOW_OVERRIDE` | those of the group in it take their place |
//! | `BPF_F_ALLOW_MULTI` | run after those of the group in it |
//!
//! Programs with `BPF_F_PREORDER` run before all others, those of outer groups first.

use crate::caller::ControlGroup;
use crate::engine::Engine;
use crate::errno::Errno;
use crate::ordered::Entry;
use crate::programs::ProgramObject;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// `BPF_F_ALLOW_OVERRIDE`, `BPF_F_ALLOW_MULTI`, `BPF_F_PREORDER`.
pub(crate) const F_OVERRIDE: u32 = 1 << 0;
pub(crate) const F_MULTI: u32 = 1 << 1;
pub(crate) const F_PREORDER: u32 = 1 << 6;
/// `BPF_F_REPLACE`.
pub(crate) const F_REPLACE: u32 = 1 << 2;

/// The most programs of a group, for each type of attachment.
const MOST: usize = 64;

/// The programs of all control groups, by group and type of attachment. A group without programs is not in it.
pub(crate) struct Groups<E: Engine> {
    lists: BTreeMap<(u64, u32), List<E>>,
}

struct List<E: Engine> {
    group: ControlGroup,
    /// [`F_OVERRIDE`], [`F_MULTI`] or none.
    flags: u32,
    /// Each with [`F_PREORDER`] or not.
    entries: Vec<(Entry<E>, bool)>,
}

impl<E: Engine> Groups<E> {
    pub(crate) const fn new() -> Self {
        Self { lists: BTreeMap::new() }
    }

    /// A group's own programs, and its flags.
    pub(crate) fn own(&self, group: &ControlGroup, attach_type: u32) -> (Vec<Entry<E>>, u32) {
        self.lists.get(&(group.id(), attach_type)).map_or((Vec::new(), 0), |list| {
            (list.entries.iter().map(|(entry, _)| entry.clone()).collect(), list.flags)
        })
    }

    /// The programs that run for a group, in their order.
    pub(crate) fn effective(&self, group: &ControlGroup, attach_type: u32) -> Vec<Entry<E>> {
        let (mut first, mut later): (Vec<Vec<Entry<E>>>, Vec<Entry<E>>) = (Vec::new(), Vec::new());
        let mut any = false;
        for id in group.path().iter().rev() {
            let Some(list) = self.lists.get(&(*id, attach_type)) else { continue };
            if any && list.flags & F_MULTI == 0 {
                continue;
            }
            any = true;
            let of = |early: bool| list.entries.iter().filter(move |(_, preorder)| *preorder == early);
            first.push(of(true).map(|(entry, _)| entry.clone()).collect());
            later.extend(of(false).map(|(entry, _)| entry.clone()));
        }
        first.into_iter().rev().flatten().chain(later).collect()
    }

    /// The groups for which other programs run after a change in this one: itself, and those in it that have some.
    pub(crate) fn concerned(&self, group: &ControlGroup, attach_type: u32) -> Vec<ControlGroup> {
        let lists = self.lists.iter().filter(|((_, of), _)| *of == attach_type);
        let inside = lists.map(|(_, list)| &list.group);
        let inside = inside.filter(|other| other.id() != group.id() && other.path().contains(&group.id()));
        inside.chain([group]).cloned().collect()
    }

    /// The numbers of the groups that have programs.
    pub(crate) fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.lists.keys().map(|(id, _)| *id).collect();
        ids.dedup();
        ids
    }

    /// Whether groups around this one let it have programs.
    fn is_allowed(&self, group: &ControlGroup, attach_type: u32) -> bool {
        let around = group.path().iter().rev().skip(1);
        let nearest = around.filter_map(|id| self.lists.get(&(*id, attach_type))).next();
        nearest.is_none_or(|list| list.flags & (F_MULTI | F_OVERRIDE) != 0)
    }

    /// Attaches a program. `replaced`: with [`F_REPLACE`], the one that it takes the place of.
    pub(crate) fn attach(
        &mut self,
        group: &ControlGroup,
        attach_type: u32,
        entry: Entry<E>,
        flags: u32,
        replaced: Option<&Arc<ProgramObject<E>>>,
    ) -> Result<(), Errno> {
        let mode = flags & (F_OVERRIDE | F_MULTI);
        if mode == F_OVERRIDE | F_MULTI || (flags & F_REPLACE != 0 && mode != F_MULTI) {
            return Err(Errno::EINVAL);
        }
        if !self.is_allowed(group, attach_type) {
            return Err(Errno::EPERM);
        }
        let key = (group.id(), attach_type);
        let preorder = flags & F_PREORDER != 0;
        let Some(list) = self.lists.get_mut(&key) else {
            if replaced.is_some() {
                return Err(Errno::ENOENT);
            }
            let entries = alloc::vec![(entry, preorder)];
            self.lists.insert(key, List { group: group.clone(), flags: mode, entries });
            return Ok(());
        };
        if list.flags != mode {
            return Err(Errno::EPERM);
        }
        if list.entries.len() >= MOST {
            return Err(Errno::E2BIG);
        }
        if mode != F_MULTI {
            list.entries = alloc::vec![(entry, preorder)];
            return Ok(());
        }
        let is = |other: &Entry<E>, program: &Arc<ProgramObject<E>>| {
            other.link.is_none() && Arc::ptr_eq(&other.program, program)
        };
        let again = |(other, _): &(Entry<E>, bool)| {
            is(other, &entry.program) && !replaced.is_some_and(|old| is(other, old))
        };
        if entry.link.is_none() && list.entries.iter().any(again) {
            return Err(Errno::EINVAL);
        }
        match replaced {
            Some(old) => {
                let found = list.entries.iter_mut().find(|(other, _)| is(other, old));
                *found.ok_or(Errno::ENOENT)? = (entry, preorder);
            }
            None => list.entries.push((entry, preorder)),
        }
        Ok(())
    }

    /// Detaches a program; where there can be only one, that one.
    pub(crate) fn detach(
        &mut self,
        group: &ControlGroup,
        attach_type: u32,
        program: Option<&Arc<ProgramObject<E>>>,
    ) -> Result<Entry<E>, Errno> {
        let key = (group.id(), attach_type);
        let list = self.lists.get_mut(&key).ok_or(Errno::ENOENT)?;
        let place = if list.flags & F_MULTI == 0 {
            0
        } else {
            let program = program.ok_or(Errno::EINVAL)?;
            let is =
                |(entry, _): &(Entry<E>, bool)| entry.link.is_none() && Arc::ptr_eq(&entry.program, program);
            list.entries.iter().position(is).ok_or(Errno::ENOENT)?
        };
        let (entry, _) = list.entries.remove(place);
        if list.entries.is_empty() {
            self.lists.remove(&key);
        }
        Ok(entry)
    }

    /// Changes the program of a link.
    pub(crate) fn update(
        &mut self,
        group: &ControlGroup,
        attach_type: u32,
        link: u32,
        program: Arc<ProgramObject<E>>,
    ) {
        let list = self.lists.get_mut(&(group.id(), attach_type));
        let mut entries = list.into_iter().flat_map(|list| list.entries.iter_mut());
        if let Some((entry, _)) = entries.find(|(entry, _)| entry.link == Some(link)) {
            entry.program = program;
        }
    }

    /// Ends a link.
    pub(crate) fn end(&mut self, group: &ControlGroup, attach_type: u32, link: u32) {
        let key = (group.id(), attach_type);
        if let Some(list) = self.lists.get_mut(&key) {
            list.entries.retain(|(entry, _)| entry.link != Some(link));
            if list.entries.is_empty() {
                self.lists.remove(&key);
            }
        }
    }

    /// Ends all programs of a group that is gone. Returns them with their types of attachment.
    pub(crate) fn forget(&mut self, id: u64) -> Vec<(u32, ControlGroup, Vec<Entry<E>>)> {
        let keys: Vec<(u64, u32)> = self.lists.range((id, 0)..=(id, u32::MAX)).map(|(key, _)| *key).collect();
        let lists = keys.into_iter().filter_map(|key| Some((key.1, self.lists.remove(&key)?)));
        let ended = lists.map(|(attach_type, list)| {
            (attach_type, list.group, list.entries.into_iter().map(|(entry, _)| entry).collect())
        });
        ended.collect()
    }
}
