//! Functions whose prototype is data, for hosts in other languages: no Rust type says what they take.
//!
//! ```text
//!   Prototype (data) ──> HelperProto ──> the verifier proves each call
//!        └── Parameter of each argument ──> registers ──> Given ── call ──> i64 ── Returns ──> r0
//! ```
//!
//! Invariant: an argument is taken from its registers in the way for which the verifier proved them, because both
//! follow from the same [`Parameter`]; and a result is in the range that the verifier was told, whatever the
//! function returns. As for functions with Rust types, memory is copied in before the call, and back after it if it
//! is writable.

use super::argument::{Argument, PacketView, Registers};
use super::callback::{Callback, HeldCallback};
use super::errno::Errno;
use super::host::{HostPart, host_part};
use super::memory;
use super::owner;
use crate::ending;
use crate::error::Error;
use crate::image::Image;
use crate::run_state::RunState;
use crate::shared::Helper;
use skep_abi::{Access, ArgKind, HelperProto, RetKind, RunEnv};
use skep_maps::Map;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The most bytes of an argument of fixed size.
const MOST: u32 = 1 << 20;

/// An argument of a function whose prototype is data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parameter {
    /// A number. Takes one register.
    Number,
    /// Memory of that many bytes, at least 1. Takes one register.
    Memory {
        /// How many.
        bytes: u32,
        /// Whether the function reads it, fills it, or both.
        access: Access,
    },
    /// Memory, and its size. Takes two registers.
    Bytes {
        /// Whether the function may write it.
        writable: bool,
        /// Whether programs may pass null with a size of 0.
        nullable: bool,
    },
    /// A map. Takes one register.
    Map,
    /// The program's context, for its packet. Takes one register.
    Packet,
    /// A function of the program, and what that gets ([`Callback`]). Takes two registers. At most one.
    Callback,
    /// The context of a type of the host's own, for a function of that type
    /// ([`RuntimeBuilder::dynamic_method`](crate::RuntimeBuilder::dynamic_method)). Takes one register. It comes
    /// first, and excludes a callback.
    Host,
}

/// A result of such a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Returns {
    /// Nothing: programs cannot read it.
    Nothing,
    /// 0, or 1 for any other number.
    Bool,
    /// An integer, cut to its size and extended from there.
    Integer {
        /// 1, 2, 4 or 8.
        bytes: u32,
        /// Whether it is extended by its sign.
        signed: bool,
    },
    /// A number of 32 bits, or a negated error number, down to -4095. Other results become that of ERANGE.
    OrErrno,
}

/// A prototype as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prototype {
    parameters: Vec<Parameter>,
    returns: Returns,
}

/// An argument of a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Given<'a> {
    /// A number.
    Number(u64),
    /// A copy of memory; `None` for null. It is copied back if it is writable.
    Bytes(Option<&'a mut [u8]>),
    /// A map.
    Map(&'a Map),
    /// The packet that the program runs on.
    Packet(PacketView<'a>),
    /// A function of the program.
    Callback(Callback<'a>),
    /// What the run lends to functions of the type.
    Host(HostPart<'a>),
}

/// The run that a call is part of.
pub struct Invocation<'a> {
    env: *mut RunEnv,
    call: PhantomData<&'a ()>,
}

/// What is called: it gets as many arguments as there are parameters.
type Body = dyn Fn(&Invocation<'_>, &mut [Given<'_>]) -> i64 + Send + Sync;

impl Prototype {
    /// A prototype.
    ///
    /// # Errors
    ///
    /// [`Error::Prototype`] if the arguments need more than five registers, memory has no bytes or more than a
    /// mebibyte, or callbacks and contexts are more than each [`Parameter`] says.
    pub fn new(parameters: &[Parameter], returns: Returns) -> Result<Self, Error> {
        let wrong = |why: String| Err(Error::Prototype { name: String::new(), why });
        let registers: usize = parameters.iter().map(|parameter| parameter.kinds().1).sum();
        if registers > 5 {
            return wrong(format!("it takes {registers} registers: a function takes at most five"));
        }
        let count = |wanted: Parameter| parameters.iter().filter(|parameter| **parameter == wanted).count();
        if count(Parameter::Callback) > 1 {
            return wrong("a function takes at most one callback".to_owned());
        }
        let hosts = count(Parameter::Host);
        if hosts > 0 && (parameters[0] != Parameter::Host || hosts > 1 || count(Parameter::Callback) > 0) {
            return wrong("the host's context comes first, once, and without a callback".to_owned());
        }
        for parameter in parameters {
            if let Parameter::Memory { bytes, .. } = *parameter
                && !(1..=MOST).contains(&bytes)
            {
                return wrong(format!("memory of {bytes} bytes: it has at least 1 and at most {MOST}"));
            }
        }
        if let Returns::Integer { bytes, .. } = returns
            && ![1, 2, 4, 8].contains(&bytes)
        {
            return wrong(format!("an integer of {bytes} bytes: there are 1, 2, 4 and 8"));
        }
        Ok(Self { parameters: parameters.to_vec(), returns })
    }

    /// Whether it is one for functions of a type of the host's own.
    pub(crate) fn is_method(&self) -> bool {
        self.parameters.first() == Some(&Parameter::Host)
    }
}

impl Parameter {
    /// What the verifier proves, and how many registers it takes.
    fn kinds(self) -> ([ArgKind; 2], usize) {
        let one = |kind| ([kind, ArgKind::None], 1);
        match self {
            Self::Number => one(ArgKind::Scalar),
            Self::Memory { bytes, access } => one(ArgKind::FixedMemory { access, bytes }),
            Self::Bytes { writable, nullable } => {
                let access = if writable { Access::ReadWrite } else { Access::Read };
                ([ArgKind::Memory { access, nullable }, ArgKind::Size { zero: true }], 2)
            }
            Self::Map => one(ArgKind::Map),
            Self::Packet => one(ArgKind::Context),
            Self::Callback => ([ArgKind::Callback(skep_abi::Callback::Host), ArgKind::CallbackContext], 2),
            Self::Host => one(ArgKind::HostContext),
        }
    }
}

impl Returns {
    fn kind(self) -> RetKind {
        match self {
            Self::Nothing => RetKind::Void,
            Self::Bool => RetKind::Range { min: 0, max: 1 },
            Self::Integer { bytes: 8, .. } => RetKind::Scalar,
            Self::Integer { bytes, signed: false } => RetKind::Range { min: 0, max: (1 << (8 * bytes)) - 1 },
            Self::Integer { bytes, signed: true } => {
                let half = 1 << (8 * bytes - 1);
                RetKind::Range { min: -half, max: half - 1 }
            }
            Self::OrErrno => RetKind::Range { min: -i64::from(Errno::MAX), max: u32::MAX.into() },
        }
    }

    /// The register for what a function returned: in the range of `kind`, whatever that is.
    fn register(self, result: i64) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Bool => u64::from(result != 0),
            Self::Integer { bytes, signed } => {
                let unused = 64 - 8 * bytes;
                match signed {
                    true => ((result << unused) >> unused).cast_unsigned(),
                    false => (result.cast_unsigned() << unused) >> unused,
                }
            }
            Self::OrErrno if (-i64::from(Errno::MAX)..=u32::MAX.into()).contains(&result) => {
                result.cast_unsigned()
            }
            Self::OrErrno => Errno::ERANGE.into_register(),
        }
    }
}

impl Invocation<'_> {
    /// The name of the program that the host runs, also after a tail call.
    pub fn program(&self) -> &str {
        // SAFETY: the environment is that of the run in progress, which outlives the call.
        unsafe { Image::of_run(self.env) }.name()
    }

    /// The virtual CPU that it runs on.
    pub fn cpu(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.env).cpu }
    }

    /// A copy of the run's state ([`Program::with_state`](crate::Program::with_state)), if it has one of this type
    /// and no function has it.
    pub fn state<T: Any + Copy>(&self) -> Option<T> {
        // SAFETY: as above.
        let (value, lent) = unsafe { RunState::of_run(self.env) }?.place::<T>()?;
        // SAFETY: the run's caller lends it for the whole run, and nobody has it at this moment.
        (!lent.get()).then(|| unsafe { value.read() })
    }
}

impl fmt::Debug for Invocation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation").field("program", &self.program()).finish_non_exhaustive()
    }
}

/// What the shim finds.
struct Dynamic {
    prototype: Prototype,
    body: Box<Body>,
}

/// The function as a helper.
pub(crate) fn dynamic(id: u32, name: String, prototype: &Prototype, body: Box<Body>) -> Helper {
    let mut args = [ArgKind::None; 5];
    let mut next = 0;
    for parameter in &prototype.parameters {
        let (kinds, count) = parameter.kinds();
        args[next..next + count].copy_from_slice(&kinds[..count]);
        next += count;
    }
    let mut proto = HelperProto::new(id, "", args, prototype.returns.kind());
    proto.name = name.into();
    // As for functions with Rust types.
    proto.moves_packet = proto.calls_back();
    Helper {
        proto,
        call: Some(call as _),
        owned: Some(Arc::new(Dynamic { prototype: prototype.clone(), body })),
        takes: None,
        of_host: true,
        may_panic: true,
    }
}

/// An argument during a call.
enum Held {
    Number(u64),
    Bytes { value: Option<Vec<u8>>, home: u64, write_back: bool },
    Map(*const Map),
    Packet(u64),
    Callback(HeldCallback),
    Host(HostPart<'static>),
}

impl Held {
    /// # Safety
    ///
    /// The next registers hold what the parameter's kinds say, in the run whose environment `registers` has.
    unsafe fn take(parameter: Parameter, registers: &mut Registers) -> Self {
        // SAFETY: the caller's promise, to each of these; it is what their own kinds say, too.
        unsafe {
            match parameter {
                Parameter::Number => Self::Number(registers.take()),
                Parameter::Memory { bytes, access } => {
                    let home = registers.take();
                    let mut value = vec![0; bytes as usize];
                    if access != Access::Write {
                        memory::read(home, &mut value);
                    }
                    Self::Bytes { value: Some(value), home, write_back: access != Access::Read }
                }
                Parameter::Bytes { writable, .. } => {
                    let home = registers.take();
                    let mut value = vec![0; registers.take() as usize];
                    memory::read(home, &mut value);
                    Self::Bytes { value: (home != 0).then_some(value), home, write_back: writable }
                }
                Parameter::Map => Self::Map(<&Map>::hold(registers)),
                Parameter::Packet => Self::Packet(PacketView::hold(registers)),
                Parameter::Callback => Self::Callback(Callback::hold(registers)),
                Parameter::Host => Self::Host(host_part(registers)),
            }
        }
    }

    fn lend(&mut self) -> Given<'_> {
        match self {
            Self::Number(number) => Given::Number(*number),
            Self::Bytes { value, .. } => Given::Bytes(value.as_deref_mut()),
            Self::Map(map) => Given::Map(<&Map>::lend(map)),
            Self::Packet(context) => Given::Packet(PacketView::lend(context)),
            Self::Callback(held) => Given::Callback(Callback::lend(held)),
            Self::Host(part) => Given::Host(part.lend()),
        }
    }

    /// # Safety
    ///
    /// As for [`Held::take`], in the same call.
    unsafe fn give_back(self) {
        if let Self::Bytes { value: Some(value), home, write_back: true } = self {
            // SAFETY: the verifier proved as many bytes writable.
            unsafe { memory::write(&value, home) };
        }
    }
}

/// The function behind the machine's calling convention.
unsafe extern "C" fn call(r1: u64, r2: u64, r3: u64, r4: u64, r5: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: this is the implementation of functions alone that own a `Dynamic`; `env` is the run's. First: a
    // callback's calls note others.
    let function = unsafe { owner::<Dynamic>(env) };
    let mut registers = Registers::new([r1, r2, r3, r4, r5], env);
    let parameters = function.prototype.parameters.iter();
    // SAFETY: the verifier proved the arguments by the prototype that was made of these parameters.
    let mut held: Vec<Held> = parameters.map(|of| unsafe { Held::take(*of, &mut registers) }).collect();
    let lent = || {
        let mut given: Vec<Given<'_>> = held.iter_mut().map(Held::lend).collect();
        (function.body)(&Invocation { env, call: PhantomData }, &mut given)
    };
    // SAFETY: `env` is the run's; code that calls functions of the host looks for its end.
    let result = unsafe { ending::guard(call, env, lent) };
    // The program ends right after this call, and reads nothing any more.
    let Some(result) = result else { return 0 };
    for held in held {
        // SAFETY: as above; the program is not running meanwhile.
        unsafe { held.give_back() };
    }
    function.prototype.returns.register(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_range_that_the_verifier_was_told() {
        let integers = [1, 2, 4, 8]
            .into_iter()
            .flat_map(|bytes| [false, true].map(|signed| Returns::Integer { bytes, signed }));
        let all = integers.chain([Returns::Nothing, Returns::Bool, Returns::OrErrno]);
        for returns in all {
            for result in [0, 1, -1, 127, 128, 255, 256, -4095, -4096, 1 << 31, 1 << 32, i64::MAX, i64::MIN] {
                let register = returns.register(result).cast_signed();
                if let RetKind::Range { min, max } = returns.kind() {
                    assert!((min..=max).contains(&register), "{returns:?}: {result} became {register}");
                }
            }
        }
        assert_eq!(Returns::Integer { bytes: 1, signed: true }.register(255).cast_signed(), -1);
        assert_eq!(Returns::OrErrno.register(-4096).cast_signed(), -34);
    }

    #[test]
    fn prototypes_that_no_call_can_have_are_refused() {
        let bytes = Parameter::Bytes { writable: false, nullable: false };
        let wrong: [&[Parameter]; 5] = [
            &[bytes, bytes, bytes],
            &[Parameter::Callback, Parameter::Callback],
            &[Parameter::Number, Parameter::Host],
            &[Parameter::Host, Parameter::Callback],
            &[Parameter::Memory { bytes: 0, access: Access::Read }],
        ];
        for parameters in wrong {
            assert!(Prototype::new(parameters, Returns::Nothing).is_err(), "{parameters:?}");
        }
        assert!(Prototype::new(&[], Returns::Integer { bytes: 3, signed: false }).is_err());
    }
}
