//! Places with many programs in an order that callers decide: before or after another one.
//!
//! ```text
//!   before the first                                 after the last
//!         -1    | program 0 | program 1 | program 2 |    3
//! ```
//!
//! A request names a position in up to three ways: the program that it replaces or detaches, the one before another,
//! the one after another. All of them must name the same.

use crate::engine::Engine;
use crate::errno::Errno;
use crate::programs::ProgramObject;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// `BPF_F_REPLACE`, `BPF_F_BEFORE`, `BPF_F_AFTER`, `BPF_F_ID`, `BPF_F_LINK`.
pub(crate) const F_REPLACE: u32 = 1 << 2;
pub(crate) const F_BEFORE: u32 = 1 << 3;
pub(crate) const F_AFTER: u32 = 1 << 4;
pub(crate) const F_ID: u32 = 1 << 5;
pub(crate) const F_LINK: u32 = 1 << 13;
/// All that say where.
pub(crate) const F_WHERE: u32 = F_BEFORE | F_AFTER | F_ID | F_LINK;

/// The most programs at one place.
const MOST: usize = 63;

/// A program at a place.
pub(crate) struct Entry<E: Engine> {
    pub(crate) program: Arc<ProgramObject<E>>,
    /// The link that holds it there; `None` for those that stay until somebody detaches them.
    pub(crate) link: Option<u32>,
}

impl<E: Engine> Clone for Entry<E> {
    fn clone(&self) -> Self {
        Self { program: Arc::clone(&self.program), link: self.link }
    }
}

/// The programs at a place.
pub(crate) struct Ordered<E: Engine> {
    pub(crate) entries: Vec<Entry<E>>,
    /// Counts the changes, from 1.
    pub(crate) revision: u64,
}

impl<E: Engine> Clone for Ordered<E> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), revision: self.revision }
    }
}

impl<E: Engine> Default for Ordered<E> {
    fn default() -> Self {
        Self { entries: Vec::new(), revision: 1 }
    }
}

/// The program, and maybe the link, that a place is before or after.
pub(crate) struct Relative<E: Engine> {
    pub(crate) program: Arc<ProgramObject<E>>,
    pub(crate) link: Option<u32>,
}

/// Where a program goes, or which one goes.
pub(crate) struct Where<E: Engine> {
    pub(crate) flags: u32,
    pub(crate) relative: Option<Relative<E>>,
    /// The revision that the caller has seen; 0 for any.
    pub(crate) revision: u64,
}

impl<E: Engine> Ordered<E> {
    fn position(&self, found: impl Fn(&Entry<E>) -> bool) -> Result<isize, Errno> {
        self.entries.iter().position(found).map(|at| at as isize).ok_or(Errno::ENOENT)
    }

    fn exact(&self, program: &Arc<ProgramObject<E>>) -> Result<isize, Errno> {
        self.position(|entry| Arc::ptr_eq(&entry.program, program))
    }

    /// Where the flags say, which must be `at` if that is given; `None` if nothing says where.
    fn agreed(&self, to: &Where<E>, at: Option<isize>) -> Result<Option<isize>, Errno> {
        let relative = || match &to.relative {
            None => Ok(None),
            Some(relative) => {
                let found = |entry: &Entry<E>| {
                    let linked = relative.link.is_none() || entry.link == relative.link;
                    linked && Arc::ptr_eq(&entry.program, &relative.program)
                };
                self.position(found).map(Some)
            }
        };
        let mut at = at;
        let mut agree = |place: isize| match at {
            Some(other) if other != place => Err(Errno::ERANGE),
            _ => {
                at = Some(place);
                Ok(())
            }
        };
        if to.flags & F_BEFORE != 0 {
            agree(relative()?.map_or(-1, |place| place - 1))?;
        }
        if to.flags & F_AFTER != 0 {
            agree(relative()?.map_or(self.entries.len() as isize, |place| place + 1))?;
        }
        Ok(at)
    }

    fn check_revision(&self, to: &Where<E>) -> Result<(), Errno> {
        if to.revision != 0 && to.revision != self.revision { Err(Errno::ESTALE) } else { Ok(()) }
    }

    /// Puts a program there. `replaced`: the one that it replaces, with [`F_REPLACE`].
    pub(crate) fn attach(
        &mut self,
        entry: Entry<E>,
        to: &Where<E>,
        replaced: Option<&Arc<ProgramObject<E>>>,
    ) -> Result<(), Errno> {
        self.check_revision(to)?;
        if self.exact(&entry.program).is_ok() {
            return Err(Errno::EEXIST);
        }
        if to.flags & F_REPLACE != 0 {
            let place = self.exact(replaced.ok_or(Errno::ENOENT)?)?;
            self.agreed(to, Some(place))?;
            let old = self.entries.get_mut(place as usize).ok_or(Errno::ENOENT)?;
            if old.link.is_some() {
                return Err(Errno::EBUSY);
            }
            *old = entry;
        } else {
            if self.entries.len() >= MOST {
                return Err(Errno::ERANGE);
            }
            let place = match self.agreed(to, None)? {
                Some(place) => place,
                None if to.relative.is_some() => return Err(Errno::EINVAL),
                None => self.entries.len() as isize,
            };
            // A place before another is the one behind the program before it.
            let place = if to.flags & F_BEFORE != 0 { place + 1 } else { place };
            self.entries.insert((place as usize).min(self.entries.len()), entry);
        }
        self.revision += 1;
        Ok(())
    }

    /// Takes a program away: that one, or the one at the place that is given, or the last.
    pub(crate) fn detach(
        &mut self,
        program: Option<&Arc<ProgramObject<E>>>,
        to: &Where<E>,
    ) -> Result<Entry<E>, Errno> {
        self.check_revision(to)?;
        if self.entries.is_empty() {
            return Err(Errno::ENOENT);
        }
        let exact = program.map(|program| self.exact(program)).transpose()?;
        let place = match self.agreed(to, exact)? {
            Some(place) => place,
            None if to.relative.is_some() => return Err(Errno::EINVAL),
            None => self.entries.len() as isize,
        };
        let place = place.clamp(0, self.entries.len() as isize - 1) as usize;
        if self.entries.get(place).is_none_or(|entry| entry.link.is_some()) {
            return Err(Errno::EBUSY);
        }
        self.revision += 1;
        Ok(self.entries.remove(place))
    }

    /// Changes the program of a link.
    pub(crate) fn update(&mut self, link: u32, program: Arc<ProgramObject<E>>) -> Result<(), Errno> {
        if self.exact(&program).is_ok() {
            return Err(Errno::EEXIST);
        }
        let entry = self.entries.iter_mut().find(|entry| entry.link == Some(link)).ok_or(Errno::ENOLINK)?;
        entry.program = program;
        self.revision += 1;
        Ok(())
    }

    /// Ends a link.
    pub(crate) fn end(&mut self, link: u32) {
        self.entries.retain(|entry| entry.link != Some(link));
        self.revision += 1;
    }
}
