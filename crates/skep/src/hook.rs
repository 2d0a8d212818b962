//! Hooks: places in the host where programs are attached, and can be changed while they run.
//!
//! A hook is a list that is never changed, only replaced: a run uses the list that was current when it began.
//!
//! ```text
//!   run:      enter a read section --> load the list --> its programs, in order --> leave
//!   change:   copy the list, with the change --> one store --> the old one is dropped after a grace period
//! ```
//!
//! So a run executes each link once, with the old program or the new one, and misses none.

use crate::audit::AuditEvent;
use crate::dispatch::Shape;
use crate::error::Error;
use crate::host::{HostData, HostType};
use crate::observe;
use crate::packet::Packet;
use crate::program::Program;
use crate::runtime::Runtime;
use crate::shared::Shared;
use crate::stats::{LinkCounts, RunStats};
use skep_rcu::Grace;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A place in the host where programs are attached. Cheap to clone; clones are the same hook.
///
/// Any thread can attach, replace and detach programs while others run the hook; neither side waits for the other.
///
/// ```
/// use skep::{Object, Packet, Runtime};
/// use std::ops::ControlFlow;
///
/// let runtime = Runtime::new()?;
/// let program = |result: i32| {
///     let text = format!("r0 = {result}\nexit");
///     let insns = skep::isa::assemble(&text).expect("the text is right");
///     let object = Object::from_insns("verdict", skep::abi::ProgramType::from_name("xdp").expect("a type"), insns);
///     Ok::<_, skep::Error>(runtime.load(&object)?.programs()[0].clone())
/// };
/// let hook = runtime.hook();
/// let link = hook.attach(&program(2)?)?;
///
/// let mut results = Vec::new();
/// let mut packet = Packet::new(&[0; 64]);
/// hook.run(&mut packet, |_, result| {
///     results.push(result);
///     ControlFlow::Continue(())
/// })?;
/// link.replace(&program(1)?)?; // runs in progress finish in the old program
/// runtime.synchronize()?; // no thread runs the old program now
/// hook.run(&mut packet, |_, result| {
///     results.push(result);
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(results, [2, 1]);
///
/// drop(link); // detaches
/// assert!(hook.programs()?.is_empty());
/// # Ok::<(), skep::Error>(())
/// ```
#[derive(Clone)]
pub struct Hook {
    inner: Arc<Inner>,
}

/// One attachment of a program to a [`Hook`]. Dropping it detaches the program.
pub struct Link {
    hook: Hook,
    id: u64,
    counts: Arc<LinkCounts>,
}

struct Inner {
    shared: Arc<Shared>,
    /// Never null: from [`Box::into_raw`]. Stored with Release under `changing`; the partners are the Acquire loads of
    /// runs.
    list: AtomicPtr<List>,
    changing: Mutex<Changing>,
}

/// What is attached, in the order of attachment.
#[derive(Clone, Default)]
struct List {
    attached: Vec<Attached>,
    /// Whether the programs are sleepable.
    sleepable: bool,
}

#[derive(Clone)]
struct Attached {
    id: u64,
    program: Program,
}

/// Protects changes of the list.
#[derive(Default)]
struct Changing {
    next_id: u64,
    /// The arguments of the programs, set by the first that is attached.
    shape: Option<Shape>,
}

/// What the audit log calls a hook.
const HOOK: &str = "hook";

impl Runtime {
    /// A hook for this runtime's programs.
    pub fn hook(&self) -> Hook {
        let list = AtomicPtr::new(Box::into_raw(Box::default()));
        let shared = Arc::clone(self.shared());
        Hook { inner: Arc::new(Inner { shared, list, changing: Mutex::default() }) }
    }
}

impl Hook {
    /// Attaches a program after those that are attached.
    ///
    /// # Errors
    ///
    /// [`Error::WrongAttachment`] if its arguments differ from those of the first program; [`Error::ForeignProgram`] if
    /// it is from another runtime.
    pub fn attach(&self, program: &Program) -> Result<Link, Error> {
        let counts = self.inner.new_counts(program);
        let event = || observe::attach(program.verified(), HOOK);
        let id = self.observed(program, event, || {
            self.change(&[program], |list, id| {
                list.attached.push(Attached { id, program: program.through(Some(&counts)) });
            })
        })?;
        Ok(Link { hook: self.clone(), id, counts })
    }

    /// Runs the attached programs on a packet, in the order of attachment, and passes each result to `each`, until that
    /// returns [`ControlFlow::Break`]. Each program sees the packet as the one before left it.
    ///
    /// # Errors
    ///
    /// As [`Program::run`]; those behind the one that failed are not run.
    pub fn run(
        &self,
        packet: &mut Packet,
        each: impl FnMut(&Program, u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut each = each;
        self.run_each(|program| Ok(each(program, program.run(packet)?)))
    }

    /// As [`Hook::run`], with programs of type `raw` and a buffer.
    ///
    /// # Errors
    ///
    /// As [`Program::run_raw`]; those behind the one that failed are not run.
    pub fn run_raw(
        &self,
        buffer: &mut [u8],
        each: impl FnMut(&Program, u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut each = each;
        self.run_each(|program| Ok(each(program, program.run_raw(buffer)?)))
    }

    /// As [`Hook::run`], with a context of a type that was described as data, and the results as numbers.
    ///
    /// # Errors
    ///
    /// As [`Program::run_data`]; those behind the one that failed are not run.
    pub fn run_data<P: 'static>(
        &self,
        host: &'static HostType,
        context: &mut dyn HostData,
        part: &mut P,
        each: impl FnMut(&Program, i32) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut each = each;
        self.run_each(|program| Ok(each(program, program.run_data(host, context, part)?)))
    }

    /// The attached programs, in the order in which they run.
    ///
    /// # Errors
    ///
    /// [`Error::Slots`] as for [`Program::run`].
    pub fn programs(&self) -> Result<Vec<Program>, Error> {
        let _section = self.inner.shared.domain.enter()?;
        Ok(self.inner.list().attached.iter().map(|attached| attached.program.through(None)).collect())
    }

    /// Whether nothing is attached. Takes the lock of changes, and no virtual CPU.
    pub(crate) fn is_empty(&self) -> bool {
        let _unchanged = self.inner.lock();
        self.inner.list().attached.is_empty()
    }

    /// Passes each program to `run`, until that returns true.
    #[inline]
    pub(crate) fn until(&self, run: impl FnMut(&Program) -> bool) -> Result<(), Error> {
        let domain = &self.inner.shared.domain;
        let section = domain.enter()?;
        if !self.sleeps() {
            self.each_until(run);
            return Ok(());
        }
        // All of them are sleepable. They must not delay grace periods of the normal flavour, so the list is loaded
        // again
        // in a sleepable section.
        let _sleepable = domain.enter_sleepable()?;
        drop(section);
        self.each_until(run);
        Ok(())
    }

    /// Whether the programs are sleepable. The caller is in a section.
    #[inline]
    fn sleeps(&self) -> bool {
        self.inner.list().sleepable
    }

    /// The caller is in a section of the programs' flavour.
    #[inline]
    fn each_until(&self, mut run: impl FnMut(&Program) -> bool) {
        for attached in &self.inner.list().attached {
            if run(&attached.program) {
                break;
            }
        }
    }

    /// Runs each program by `run`, until that returns [`ControlFlow::Break`].
    fn run_each(&self, mut run: impl FnMut(&Program) -> Result<ControlFlow<()>, Error>) -> Result<(), Error> {
        let mut failed = Ok(());
        self.until(|program| match run(program) {
            Ok(flow) => flow.is_break(),
            Err(error) => {
                failed = Err(error);
                true
            }
        })?;
        failed
    }

    /// Ends these links and runs the programs in their place, in that order: a run sees all of the old ones, or all of
    /// the new ones. They come behind those of other links.
    ///
    /// # Errors
    ///
    /// As [`Hook::attach`]; nothing has changed then.
    #[cfg(feature = "sys")]
    pub(crate) fn replace_all(&self, links: &mut Vec<Link>, programs: &[&Program]) -> Result<(), Error> {
        let ended = |attached: &Attached| links.iter().any(|link| link.id == attached.id);
        let counts: Vec<_> = programs.iter().map(|program| self.inner.new_counts(program)).collect();
        let observed = &self.inner.shared.observed;
        for program in programs {
            let event = || observe::attach(program.verified(), HOOK);
            observed.tell(program.image().tenant.as_deref(), None, event)?;
        }
        let failed = |error: &Error| {
            for program in programs {
                let event = || observe::attach(program.verified(), HOOK);
                // That it is refused needs no permission.
                let _ = observed.tell(program.image().tenant.as_deref(), Some(error), event);
            }
        };
        let first = self.change(programs, |list, first| {
            list.attached.retain(|attached| !ended(attached));
            let new = (first..)
                .zip(programs)
                .zip(&counts)
                .map(|((id, program), counts)| Attached { id, program: program.through(Some(counts)) });
            list.attached.extend(new);
        });
        let first = first.inspect_err(failed)?;
        let new = (first..).zip(counts).map(|(id, counts)| Link { hook: self.clone(), id, counts });
        *links = new.collect();
        Ok(())
    }

    /// Makes a change that puts a program there, and tells of it.
    fn observed<R>(
        &self,
        program: &Program,
        event: impl Fn() -> AuditEvent,
        change: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.inner.shared.observed.around(program.image().tenant.as_deref(), event, change)
    }

    /// Replaces the list by a changed one, to which `programs` are new. Returns the number of the first of them.
    fn change(&self, programs: &[&Program], change: impl FnOnce(&mut List, u64)) -> Result<u64, Error> {
        let inner = &self.inner;
        let mut changing = inner.lock();
        for program in programs {
            let name = || program.name().to_owned();
            if !Arc::ptr_eq(program.shared(), &inner.shared) {
                return Err(Error::ForeignProgram { program: name() });
            }
            program.check_runs_alone()?;
            let given = Shape::of(program.image());
            let agreed = *changing.shape.get_or_insert(given);
            if agreed != given {
                let (expected, given) = (agreed.describe(), given.describe());
                return Err(Error::WrongAttachment { program: name(), expected, given });
            }
        }
        let id = changing.next_id;
        changing.next_id += programs.len() as u64;
        // Only the holder of the lock replaces the list.
        let mut list = inner.list().clone();
        change(&mut list, id);
        list.sleepable = list.attached.first().is_some_and(|first| first.program.verified().is_sleepable());
        let old = inner.list.swap(Box::into_raw(Box::new(list)), Ordering::AcqRel);
        drop(changing);
        // SAFETY: it was made by `Box::into_raw`, and this thread alone has just replaced it.
        let old = unsafe { Box::from_raw(old) };
        inner.shared.domain.call(Grace::Both, move || drop(old));
        Ok(id)
    }
}

impl Link {
    /// Replaces the attached program, and returns the old one. Runs in progress finish in the old program; later ones
    /// run the new one. [`Runtime::synchronize`] returns when no thread runs the old one.
    ///
    /// # Errors
    ///
    /// As [`Hook::attach`]; the old program stays attached then.
    pub fn replace(&self, program: &Program) -> Result<Program, Error> {
        let mut old = None;
        let event =
            || AuditEvent::Replace { program: observe::program(program.verified()), target: HOOK.into() };
        let change = |list: &mut List, _| {
            if let Some(attached) = list.attached.iter_mut().find(|attached| attached.id == self.id) {
                let new = program.through(Some(&self.counts));
                old = Some(std::mem::replace(&mut attached.program, new).through(None));
            }
        };
        self.hook.observed(program, event, || self.hook.change(&[program], change))?;
        self.counts.now_runs(program.image().shared_name(), program.image().tenant.as_ref());
        // A link is in the list as long as it lives.
        Ok(old.unwrap_or_else(|| program.clone()))
    }

    /// The runs through this link while [statistics were on](crate::Runtime::enable_stats), of all programs that were
    /// attached, since the last [reset](Self::reset_stats). A run counts for its program too. So does a run of the
    /// program that a hook passes to a closure ([`Hook::run`]), if the closure runs it.
    pub fn stats(&self) -> RunStats {
        self.counts.counted.stats()
    }

    /// Counts the link's runs from 0 again.
    pub fn reset_stats(&self) {
        self.counts.counted.reset();
    }

    /// The hook that it is attached to.
    pub fn hook(&self) -> &Hook {
        &self.hook
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let (program, tenant) = self.counts.program();
        let event = || AuditEvent::Detach { program: program.to_string(), target: HOOK.into() };
        // It is detached all the same.
        let _ = self.hook.inner.shared.observed.tell(tenant.as_deref(), None, event);
        // Without a new program there is nothing to compare, so this cannot fail.
        let _ = self.hook.change(&[], |list, _| list.attached.retain(|attached| attached.id != self.id));
    }
}

impl Inner {
    /// What is counted of a new link.
    fn new_counts(&self, program: &Program) -> Arc<LinkCounts> {
        let counts = Arc::new(LinkCounts::default());
        counts.now_runs(program.image().shared_name(), program.image().tenant.as_ref());
        self.shared.registry.add_link(&counts, &self.shared.counts_runs, self.shared.domain.limit());
        counts
    }

    /// The current list. The caller is in a read-side critical section or holds the lock while it uses it.
    fn list(&self) -> &List {
        // SAFETY: never null; a list is dropped a grace period after it was replaced, and is replaced only under the
        // lock.
        unsafe { &*self.list.load(Ordering::Acquire) }
    }

    fn lock(&self) -> MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: never null; this is the last handle, so no thread reads it, and no other code drops it.
        drop(unsafe { Box::from_raw(*self.list.get_mut()) });
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let programs = self.programs().map_or(0, |programs| programs.len());
        f.debug_struct("Hook").field("programs", &programs).finish()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("id", &self.id).finish_non_exhaustive()
    }
}
