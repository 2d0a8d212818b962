//! Results of calls: a status number for programs, and a message for people in thread-local storage.
//!
//! No panic crosses the boundary: every function that can fail runs inside [`guard`], which turns a panic into
//! [`Status::Internal`]. Messages are written only when a call fails, so success costs nothing here.

use crate::refusal;
use skep::{Error, MapError, Refusal};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result of a function: 0, or a negative class of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// An argument is null, has the wrong size, is not UTF-8, or is not accepted by the callee.
    Argument = -1,
    /// A file could not be read.
    Read = -2,
    /// The bytes are not a BPF object, or the object contradicts itself.
    Object = -3,
    /// The verifier refused a program.
    Refused = -4,
    /// The object needs something that this library or runtime does not provide.
    Unsupported = -5,
    /// No such program, map or key, or no further key.
    NotFound = -6,
    /// The key already exists.
    Exists = -7,
    /// The map already holds its maximum number of elements.
    Full = -8,
    /// More memory than the system or a limit allows.
    Memory = -9,
    /// Every virtual CPU belongs to another thread.
    Busy = -10,
    /// The map is frozen, or its kind does not allow the change.
    Denied = -11,
    /// The compiler failed on a verified program.
    Compile = -12,
    /// A defect of the library.
    Internal = -13,
    /// A run ended early: its budget was used up, it was interrupted, or a callback of the host failed.
    Ended = -14,
    /// A tenant's quota is used up.
    Quota = -15,
}

impl Status {
    /// Every status with its name in C.
    pub const ALL: [(&'static str, Self); 16] = [
        ("SKEP_OK", Self::Ok),
        ("SKEP_E_ARGUMENT", Self::Argument),
        ("SKEP_E_READ", Self::Read),
        ("SKEP_E_OBJECT", Self::Object),
        ("SKEP_E_REFUSED", Self::Refused),
        ("SKEP_E_UNSUPPORTED", Self::Unsupported),
        ("SKEP_E_NOT_FOUND", Self::NotFound),
        ("SKEP_E_EXISTS", Self::Exists),
        ("SKEP_E_FULL", Self::Full),
        ("SKEP_E_MEMORY", Self::Memory),
        ("SKEP_E_BUSY", Self::Busy),
        ("SKEP_E_DENIED", Self::Denied),
        ("SKEP_E_COMPILE", Self::Compile),
        ("SKEP_E_INTERNAL", Self::Internal),
        ("SKEP_E_ENDED", Self::Ended),
        ("SKEP_E_QUOTA", Self::Quota),
    ];
}

/// Remedies in Rust's names, and the same in C's names.
const IN_C: [(&str, &str); 12] = [
    (
        "set it before the load, by Linker::set or Linker::variable, and load the object again",
        "set it before the load, by skep_linker_variable, and load the object again",
    ),
    ("RuntimeBuilder::budget", "SKEP_INTERRUPTIBLE or a budget in skep_runtime_options"),
    ("Program::with_state", "skep_program_run_with"),
    ("Linker::map", "skep_linker_map"),
    ("a context (Program::run_context)", "a context (skep_program_run_context)"),
    ("load them into one, or make the map with Map::create_in and Runtime::memory", "load them into one"),
    (
        "derive Context instead of implementing HostStruct by hand",
        "a pointer in the host's structure is NULL that must not be, or a slice is longer than the address space",
    ),
    ("use one of skep::abi::TYPES", "give the runtime the type by skep_builder_type"),
    ("RuntimeBuilder::cpus", "cpus of skep_runtime_options"),
    ("Runtime::release_cpu", "skep_runtime_release_cpu"),
    ("Config::limit", "code_memory of skep_runtime_options"),
    (
        "register an implementation with RuntimeBuilder::helper, or compile the call out",
        "add it by skep_builder_helper, or compile the call out",
    ),
];

/// Why a call failed: status and message.
pub(crate) struct Failure {
    status: Status,
    message: String,
    refusal: Option<Box<Refusal>>,
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The message of the calling thread's last failed call; empty if none has failed.
///
/// The string is valid until the next call on this thread fails, or the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn skep_error_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Runs the work of a function, stores the message of a failure and returns the status.
#[inline]
pub(crate) fn guard(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // Objects that a panic left half changed are not used again: the documentation allows only to free them.
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return Status::Ok as c_int,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::from_panic(&*panic),
    };
    remember(failure)
}

#[cold]
fn remember(failure: Failure) -> c_int {
    // skep's texts have no zero bytes, but names in them come from files and hosts.
    let message = CString::new(failure.message.replace('\0', "\\0")).unwrap_or_default();
    // A thread that is ending may have no storage for the message; the status must do.
    let _ = LAST.try_with(|last| *last.borrow_mut() = message);
    refusal::remember(failure.refusal.as_deref());
    failure.status as c_int
}

impl Failure {
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self { status: Status::Busy, message: message.into(), refusal: None }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self { status: Status::Argument, message: message.into(), refusal: None }
    }

    #[cfg(test)]
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn of(status: Status, message: String) -> Self {
        Self { status, message, refusal: None }
    }

    /// Failures of ordinary use: a missing key, the end of a walk.
    pub(crate) fn not_found(map: &str, what: &str) -> Self {
        Self::missing(format!("map `{map}`: {what}"))
    }

    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self { status: Status::NotFound, message: message.into(), refusal: None }
    }

    /// Text that is not what it should be.
    pub(crate) fn text(message: impl Into<String>) -> Self {
        Self { status: Status::Object, message: message.into(), refusal: None }
    }

    /// Of a callback whose run is over.
    pub(crate) fn ended() -> Self {
        let message = "the run is over: the helper should return".to_owned();
        Self { status: Status::Ended, message, refusal: None }
    }

    fn from_panic(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<&str>().copied();
        let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
        let message = format!("a defect of skep, please report it: {said}");
        Self { status: Status::Internal, message, refusal: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Read { .. } => Status::Read,
            // The object's maps contradict each other, or a map that the host gives does not fit.
            Error::Object(_) | Error::Decode(_) | Error::MapMismatch { .. } => Status::Object,
            Error::Refused(_) => Status::Refused,
            Error::HelperMissing { .. } => Status::Unsupported,
            Error::Map(error) => of_map(error),
            Error::Unknown { .. } => Status::NotFound,
            Error::ConstantVariable { .. } => Status::Denied,
            Error::Text(_) => Status::Memory,
            Error::Slots(_) | Error::LockHeld => Status::Busy,
            Error::Compile { .. } | Error::Interpret { .. } => Status::Compile,
            Error::Quota { .. } => Status::Quota,
            Error::BudgetExhausted { .. } | Error::Interrupted { .. } | Error::HostPanicked { .. } => {
                Status::Ended
            }
            Error::KernelSymbol { .. } | Error::TypeNotProvided { .. } => Status::Unsupported,
            Error::Audit { .. } => Status::Denied,
            Error::OpsTable { .. } => Status::Object,
            _ => Status::Argument,
        };
        let message = IN_C.iter().fold(error.to_string(), |message, (rust, c)| message.replace(rust, c));
        let refusal = match error {
            Error::Refused(refusal) => Some(refusal),
            _ => None,
        };
        Self { status, message, refusal }
    }
}

impl From<MapError> for Failure {
    fn from(error: MapError) -> Self {
        Self { status: of_map(&error), message: error.to_string(), refusal: None }
    }
}

fn of_map(error: &MapError) -> Status {
    match error {
        MapError::KindNotProvided { .. }
        | MapError::FieldNotAllowed { .. }
        | MapError::CreateFlags { .. } => Status::Unsupported,
        MapError::KeySize { .. }
        | MapError::ValueSize { .. }
        | MapError::NoEntries { .. }
        | MapError::Extra { .. }
        | MapError::RingSize { .. }
        | MapError::Field { .. }
        | MapError::FieldRepeated { .. }
        | MapError::NestedMaps { .. }
        | MapError::FrozenContents { .. }
        | MapError::NeitherReadNorWrite { .. }
        | MapError::NeedsNoPrealloc { .. } => Status::Object,
        MapError::Consumed { .. } | MapError::NoDescriptor { .. } => Status::Busy,
        MapError::TooLarge { .. } | MapError::NoMemory { .. } => Status::Memory,
        MapError::Missing { .. } => Status::NotFound,
        MapError::Exists { .. } => Status::Exists,
        MapError::Full { .. } | MapError::QueueFull { .. } => Status::Full,
        MapError::CannotDelete { .. } | MapError::Frozen { .. } => Status::Denied,
        MapError::LockHeld { .. } | MapError::Busy { .. } => Status::Busy,
        MapError::Quota { .. } => Status::Quota,
        _ => Status::Argument,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn message() -> String {
        // SAFETY: the pointer is to this thread's message, which does not change during the copy.
        unsafe { CStr::from_ptr(skep_error_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_and_a_message() {
        assert_eq!(guard(|| panic!("number {}", 7)), Status::Internal as c_int);
        assert_eq!(message(), "a defect of skep, please report it: number 7");
        assert_eq!(guard(|| std::panic::panic_any(7)), Status::Internal as c_int);
        assert_eq!(message(), "a defect of skep, please report it: a panic");
    }

    #[test]
    fn remedies_use_names_of_c() {
        let error = Error::HelperMissing { program: "p".into(), helper: "h".into(), id: 1 };
        let failure = Failure::from(error);
        assert_eq!(failure.status, Status::Unsupported);
        assert!(failure.message.ends_with("; add it by skep_builder_helper, or compile the call out"));
    }

    #[test]
    fn messages_stay_until_the_threads_next_failure() {
        assert_eq!(message(), "");
        assert_eq!(guard(|| Err(Failure::argument("one"))), Status::Argument as c_int);
        assert_eq!(guard(|| Ok(())), Status::Ok as c_int);
        std::thread::spawn(|| guard(|| Err(Failure::argument("elsewhere")))).join().unwrap();
        assert_eq!(message(), "one");
        guard(|| Err(Failure::argument("a\0b")));
        assert_eq!(message(), "a\\0b");
    }
}
