//! Programs inside of others: extensions, which take the place of a function of a loaded program, and watchers, which
//! run around one.
//!
//! The programs are verified for the function that their load was given ([`Linker::target`](crate::Linker::target)).
//! An attachment checks that the function which it is made to has the same contract, since programs may be attached to
//! other functions later.

use crate::audit::AuditEvent;
use crate::dispatch::Connected;
use crate::error::Error;
use crate::image::Input;
use crate::observe;
use crate::program::Program;
use skep_abi::{AttachTo, Context, TargetFunction};
use std::sync::Arc;

/// A program in the place of a function of another one, or around it. Dropping it ends that, for all calls of the
/// function that begin later.
///
/// It keeps both programs alive.
#[derive(Debug)]
pub struct Attachment {
    target: Program,
    function: usize,
    program: Program,
    place: Place,
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Instead,
    Before,
    After,
}

impl Program {
    /// A function of this program, as [`Linker::target`](crate::Linker::target) takes it: the program itself, or one
    /// that it calls, by its name in the source.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] if there is none of that name, it has no types, or the program was loaded without
    /// [`Linker::patchable`](crate::Linker::patchable).
    pub fn function(&self, name: &str) -> Result<Arc<TargetFunction>, Error> {
        self.function_at(self.index_of(name)?)
    }

    fn index_of(&self, name: &str) -> Result<usize, Error> {
        let functions = self.verified().functions();
        functions.iter().position(|function| function.name == name).ok_or_else(|| {
            let known: Vec<_> = functions.iter().map(|function| &*function.name).collect();
            self.not_a_target(name, format!("the program has the functions {}", known.join(", ")))
        })
    }

    /// The same, by the function's place in [`Verified::functions`](crate::Verified::functions).
    pub(crate) fn function_at(&self, index: usize) -> Result<Arc<TargetFunction>, Error> {
        let verified = self.verified();
        let Some(function) = verified.functions().get(index) else {
            return Err(self.not_a_target("?", "there is no such function".into()));
        };
        if self.image().input == Input::Host {
            // Extensions are linked before their target is known, so not against the host's types; and who watches
            // a function sees a context by its object's types.
            let why = "functions of programs over a host's own context cannot be replaced or watched";
            return Err(self.not_a_target(&function.name, why.into()));
        }
        let Some(types) = self.image().types.clone() else {
            let why = "the program was not loaded to be changed: use Linker::patchable, without fixed code";
            return Err(self.not_a_target(&function.name, why.into()));
        };
        let Some(prototype) = function.prototype.clone() else {
            return Err(self.not_a_target(&function.name, "the object's types do not have it".into()));
        };
        Ok(Arc::new(TargetFunction {
            program: self.name().to_owned(),
            program_type: self.program_type(),
            btf: types,
            name: function.name.clone(),
            prototype,
            main: index == 0,
            global: function.global,
            moves_packet: function.moves_packet,
            in_callback: function.in_callback,
        }))
    }

    /// Attaches a program that was loaded for such a function ([`Linker::target`](crate::Linker::target)): an extension
    /// takes the function's place, others run before it or after it. Runs that go on find it at their next call of the
    /// function; nobody waits.
    ///
    /// ```
    /// use skep::{Object, Packet, Runtime};
    ///
    /// # fn main() -> Result<(), skep::Error> {
    /// # let objects = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/objects/extensions");
    /// let runtime = Runtime::new()?;
    /// let object = Object::open(format!("{objects}/chain.bpf.o"))?;
    /// let module = runtime.linker(&object).patchable(true).load()?;
    /// let chain = module.program("chain").expect("the object has it");
    ///
    /// let object = Object::open(format!("{objects}/parts.bpf.o"))?;
    /// let load = runtime.linker(&object).only("drops").target("drops", chain.function("first")?);
    /// let drops = load.load()?.programs()[0].clone();
    ///
    /// let mut packet = Packet::new(&[0; 64]);
    /// assert_eq!(chain.run(&mut packet)?, 2); // first() lets it pass
    /// let attachment = chain.attach("first", &drops)?;
    /// assert_eq!(chain.run(&mut packet)?, 1); // drops() is in its place
    /// drop(attachment);
    /// assert_eq!(chain.run(&mut packet)?, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Target`] if the program does not fit the function; [`Error::TargetTaken`] if that is replaced or
    /// watched already (it may have several watchers); [`Error::TailCallee`] if the program is in an array of programs
    /// and this is an extension; [`Error::ForeignProgram`] of another runtime; [`Error::Text`] if code cannot be
    /// changed.
    pub fn attach(&self, function: &str, program: &Program) -> Result<Attachment, Error> {
        self.attach_at(self.index_of(function)?, program)
    }

    /// [`Program::attach`], by the function's place in [`Verified::functions`](crate::Verified::functions).
    pub(crate) fn attach_at(&self, function: usize, program: &Program) -> Result<Attachment, Error> {
        let target = self.function_at(function)?;
        let refused = |why: String| self.not_a_target(&target.name, why);
        if !Arc::ptr_eq(self.shared(), program.shared()) {
            return Err(Error::ForeignProgram { program: program.name().to_owned() });
        }
        let place = match program.program_type().context {
            _ if program.verified().is_extension() => Place::Instead,
            Context::Arguments { of: AttachTo::FunctionEntry } if program.verified().is_watcher() => {
                Place::Before
            }
            Context::Arguments { of: AttachTo::FunctionExit } if program.verified().is_watcher() => {
                Place::After
            }
            _ => {
                return Err(refused(format!(
                    "{} was not loaded to replace or to watch a function",
                    program.name()
                )));
            }
        };
        // One level: an extension of an extension, a watcher of a watcher, could lead to each other.
        if place == Place::Instead && self.verified().is_extension() {
            return Err(refused("the program is an extension itself".into()));
        }
        if self.verified().is_watcher() {
            return Err(refused("the program watches a function itself".into()));
        }
        if self.verified().is_sleepable() {
            return Err(refused("the program may sleep, and the functions' programs may not".into()));
        }
        program.verified().fits(&target).map_err(refused)?;
        let dispatch = &self.shared().dispatch;
        let busy = || Error::TargetTaken { program: self.name().to_owned(), function: target.name.clone() };
        let (own, image) = (self.image(), program.image());
        let event = || observe::attach(program.verified(), &place_of(self, function));
        let change = || match place {
            Place::Instead => dispatch.extend(own, function, image, busy),
            Place::Before | Place::After => {
                let arguments = target.prototype.params.len() as u8;
                dispatch.change_watchers(
                    own,
                    function,
                    |watchers| {
                        watchers.arguments = arguments;
                        let list =
                            if place == Place::Before { &mut watchers.before } else { &mut watchers.after };
                        list.push(Arc::clone(image));
                    },
                    busy,
                )
            }
        };
        self.shared().observed.around(image.tenant.as_deref(), event, change)?;
        Ok(Attachment { target: self.clone(), function, program: program.clone(), place })
    }

    fn not_a_target(&self, function: &str, why: String) -> Error {
        Error::Target { program: self.name().to_owned(), function: function.to_owned(), why }
    }
}

impl Attachment {
    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The program with the function.
    pub fn target(&self) -> &Program {
        &self.target
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let (dispatch, own, image) =
            (&self.target.shared().dispatch, self.target.image(), self.program.image());
        let event = || AuditEvent::Detach {
            program: self.program.name().to_owned(),
            target: place_of(&self.target, self.function),
        };
        // It is detached all the same.
        let _ = self.target.shared().observed.tell(image.tenant.as_deref(), None, event);
        let ended = match self.place {
            Place::Instead => dispatch.end_extension(own, self.function, image),
            Place::Before | Place::After => dispatch.change_watchers(
                own,
                self.function,
                |watchers| {
                    let list =
                        if self.place == Place::Before { &mut watchers.before } else { &mut watchers.after };
                    if let Some(at) = list.iter().position(|known: &Arc<Connected>| Arc::ptr_eq(known, image))
                    {
                        list.remove(at);
                    }
                },
                || Error::LockHeld,
            ),
        };
        if ended.is_err() {
            // Code that leads to the program cannot be changed any more: it stays, and what it leads to.
            std::mem::forget((self.target.clone(), self.program.clone()));
        }
    }
}

/// A function as the audit log calls it.
fn place_of(program: &Program, function: usize) -> String {
    let name = program.verified().functions().get(function).map_or("", |function| &*function.name);
    format!("function {name} of {}", program.name())
}
