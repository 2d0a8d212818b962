//! Entries of functions: which extension a function of a program is replaced by, or which programs watch it.
//!
//! ```text
//!   the function     site: nop          site: jmp ────> the extension                     one branch, replaced by
//!                          frame, body                  stub: tell the watchers,          one store
//!                                                             call the body, tell again
//!   the interpreter  Image.entries[function]            the same hook, by one store of a pointer
//! ```
//!
//! A [`EntryHook`] never changes. A change makes the next one with its stub, stores it under the lock of the program's
//! entries, and retires the one before as a tail call's stub is retired: after the CPUs were synchronised and a grace
//! period has passed ([`super::retired`]). So neither changes nor runs wait, and each call of the function finds the
//! hook before or the hook after.
//!
//! What would break this: a hook that is stored and not retired, and a stub that outlives its hook, whose address is in
//! its code.

use super::{Connected, Dispatch, Removed};
use crate::error::Error;
use skep_jit::{Watch, WatchFn};
use skep_text::{Branch, Text};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// What happens instead of a function of a program, or around it.
pub(crate) struct EntryHook {
    pub(crate) kind: EntryKind,
    /// Where the branch of a watched function leads. It is dropped with the hook.
    _stub: Option<Text>,
}

/// Which of both.
pub(crate) enum EntryKind {
    /// This program takes the function's place.
    Extension(Arc<Connected>),
    /// These programs run around it.
    Watched(Arc<Watchers>),
}

/// The programs that watch a function, in the order in which they came.
#[derive(Clone, Default)]
pub(crate) struct Watchers {
    pub(crate) before: Vec<Arc<Connected>>,
    pub(crate) after: Vec<Arc<Connected>>,
    /// How many arguments the function has.
    pub(crate) arguments: u8,
}

/// The hooks of a program's functions. The lock is a leaf, but for the one of the arena that a poke may take.
#[derive(Default)]
pub(crate) struct Entries(Mutex<BTreeMap<usize, Arc<EntryHook>>>);

/// What compiled code calls around watched functions: before them, and after them.
pub(crate) type WatchFns = (WatchFn, WatchFn);

impl Dispatch {
    /// Lets an extension take the place of a function.
    ///
    /// # Errors
    ///
    /// What `busy` makes of a function that is replaced or watched already; those of code memory.
    pub(crate) fn extend(
        self: &Arc<Self>,
        target: &Connected,
        function: usize,
        extension: &Arc<Connected>,
        busy: impl Fn() -> Error,
    ) -> Result<(), Error> {
        {
            let _state = self.lock();
            // Relaxed: both are changed and read under the dispatch's lock.
            if target.in_arrays.load(Ordering::Relaxed) > 0 {
                return Err(Error::TailCallee { program: target.name().to_owned() });
            }
            target.extended.fetch_add(1, Ordering::Relaxed);
        }
        let changed = self.change_entry(target, function, |before| match before {
            None => Ok(Some(EntryKind::Extension(Arc::clone(extension)))),
            Some(_) => Err(busy()),
        });
        if changed.is_err() {
            self.not_extended(target);
        }
        changed
    }

    fn not_extended(&self, target: &Connected) {
        let _state = self.lock();
        // Relaxed: as in `extend`.
        target.extended.fetch_sub(1, Ordering::Relaxed);
    }

    /// Ends that, if the extension is still in the function's place.
    pub(crate) fn end_extension(
        self: &Arc<Self>,
        target: &Connected,
        function: usize,
        extension: &Arc<Connected>,
    ) -> Result<(), Error> {
        self.change_entry(target, function, |before| match before {
            Some(EntryKind::Extension(known)) if Arc::ptr_eq(known, extension) => Ok(None),
            before => Ok(before.map(EntryKind::same)),
        })?;
        self.not_extended(target);
        Ok(())
    }

    /// Changes the programs that watch a function.
    ///
    /// # Errors
    ///
    /// As for [`Dispatch::extend`], if the function is replaced.
    pub(crate) fn change_watchers(
        self: &Arc<Self>,
        target: &Connected,
        function: usize,
        change: impl Fn(&mut Watchers),
        busy: impl Fn() -> Error,
    ) -> Result<(), Error> {
        self.change_entry(target, function, |before| {
            let mut watchers = match before {
                None => Watchers::default(),
                Some(EntryKind::Watched(known)) => Watchers::clone(known),
                Some(EntryKind::Extension(_)) => return Err(busy()),
            };
            change(&mut watchers);
            let none = watchers.before.is_empty() && watchers.after.is_empty();
            Ok((!none).then(|| EntryKind::Watched(Arc::new(watchers))))
        })
    }

    /// Makes the next hook of a function from the one before, all or nothing.
    fn change_entry(
        self: &Arc<Self>,
        target: &Connected,
        function: usize,
        next: impl Fn(Option<&EntryKind>) -> Result<Option<EntryKind>, Error>,
    ) -> Result<(), Error> {
        // A function that no path reaches has no code, and no branch.
        let site = target.compiled.entry_of(function);
        loop {
            let before = target.hooks.lock().get(&function).cloned();
            let kind = next(before.as_ref().map(|hook| &hook.kind))?;
            let Made { hook, leads_to } = self.make(target, function, kind.filter(|_| site.is_some()))?;
            let mut pokes = site.map(|_| self.arena.pokes()).transpose()?;
            let mut hooks = target.hooks.lock();
            let now = hooks.get(&function);
            if now.map(Arc::as_ptr) != before.as_ref().map(Arc::as_ptr) {
                // Another thread was first. Nothing leads to the stub.
                continue;
            }
            if let (Some(pokes), Some(site)) = (&mut pokes, site) {
                // SAFETY: a patchable branch of that text. What it leads to was made for it, and lives until the branch
                // was replaced, the CPUs were synchronised and the readers have left.
                unsafe { pokes.branch(target.compiled.text(), site, leads_to)? };
            }
            let address = hook.as_ref().map_or(std::ptr::null(), Arc::as_ptr).cast_mut().cast();
            if let Some(entry) = target.entries.get(function) {
                // Release pairs with the Acquire of the interpreter, which reads the hook.
                entry.store(address, Ordering::Release);
            }
            match hook {
                Some(hook) => drop(hooks.insert(function, hook)),
                None => drop(hooks.remove(&function)),
            }
            let removed = Removed { hooks: before.into_iter().collect(), poked: true, ..Removed::default() };
            self.retired.hold(&removed);
            drop(hooks);
            if let Some(Err(error)) = pokes.map(skep_text::Pokes::finish_later) {
                // When CPUs see the change is unknown: what they may still reach is kept for ever.
                std::mem::forget(removed);
                return Err(error.into());
            }
            self.retire(removed);
            return Ok(());
        }
    }

    /// A hook of that kind, and the branch to it.
    fn make(&self, target: &Connected, function: usize, kind: Option<EntryKind>) -> Result<Made, Error> {
        let Some(kind) = kind else { return Ok(Made { hook: None, leads_to: Branch::Nop }) };
        let (stub, entry) = match &kind {
            // Both count tail calls in the same register.
            EntryKind::Extension(extension) => {
                let why = || Error::Target {
                    program: target.name().to_owned(),
                    function: format!("function {function}"),
                    why: format!("{} is no extension", extension.name()),
                };
                (None, extension.compiled.start().ok_or_else(why)?)
            }
            EntryKind::Watched(watchers) => {
                let (before, after) = self.watch;
                let data = Arc::as_ptr(watchers).expose_provenance() as u64;
                let watch = Watch { data, arguments: watchers.arguments, before, after };
                (Some(target.compiled.watch(function, &self.arena, &watch)?), 0)
            }
        };
        let leads_to = Branch::To(stub.as_ref().map_or(entry, Text::address));
        Ok(Made { hook: Some(Arc::new(EntryHook { kind, _stub: stub })), leads_to })
    }
}

/// A hook that nothing leads to yet.
struct Made {
    hook: Option<Arc<EntryHook>>,
    leads_to: Branch,
}

impl EntryKind {
    fn same(&self) -> Self {
        match self {
            Self::Extension(extension) => Self::Extension(Arc::clone(extension)),
            Self::Watched(watchers) => Self::Watched(Arc::clone(watchers)),
        }
    }
}

impl Entries {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Arc<EntryHook>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
