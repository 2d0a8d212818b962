//! The verifier's refusal as data: the thread's last one, with its texts in C's form.
//!
//! Invariant: the texts belong to the thread and stay until its next failed call, like the message.

use crate::options::{self, Options};
use crate::status::{Status, guard};
use crate::text::c_string;
use skep::Refusal;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

/// `skep_refusal`: why a program was refused.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RefusalInfo {
    /// Size of this structure in bytes.
    pub size: usize,
    /// The program's name.
    pub program: *const c_char,
    /// The class, like Linux's error.
    pub code: *const c_char,
    /// The slot of the instruction.
    pub instruction: u64,
    /// The instruction in assembler.
    pub text: *const c_char,
    /// What was expected, and what was found.
    pub reason: *const c_char,
    /// What to change; empty if not known.
    pub remedy: *const c_char,
    /// The source file; empty if not known.
    pub file: *const c_char,
    /// The source line, from 1; 0 if not known.
    pub line: u64,
    /// The text of that line.
    pub source: *const c_char,
    /// How many steps lead there.
    pub steps: u64,
}

/// `skep_step`: an instruction on the way to a refusal.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct StepInfo {
    /// Size of this structure in bytes.
    pub size: usize,
    /// The slot of the instruction.
    pub instruction: u64,
    /// The instruction, and for branches the way taken.
    pub text: *const c_char,
    /// The value that it made; may be empty.
    pub state: *const c_char,
    /// The source file; empty if not known.
    pub file: *const c_char,
    /// The source line, from 1; 0 if not known.
    pub line: u64,
    /// The text of that line.
    pub source: *const c_char,
}

// SAFETY: eleven words, of which the pointers may be null.
unsafe impl Options for RefusalInfo {
    const NAME: &'static str = "skep_refusal";
}

// SAFETY: seven words, of which the pointers may be null.
unsafe impl Options for StepInfo {
    const NAME: &'static str = "skep_step";
}

/// The texts of an instruction, and its line.
struct Place {
    instruction: u32,
    text: CString,
    file: CString,
    line: u32,
    source: CString,
}

struct Texts {
    program: CString,
    code: CString,
    at: Place,
    reason: CString,
    remedy: CString,
    /// With the value that each step made.
    path: Vec<(Place, CString)>,
}

thread_local! {
    static LAST: RefCell<Option<Box<Texts>>> = const { RefCell::new(None) };
}

impl Place {
    fn new(
        instruction: u32,
        text: &str,
        file: Option<&str>,
        line: Option<u32>,
        source: Option<&str>,
    ) -> Self {
        let [file, source] = [file, source].map(|text| c_string(text.unwrap_or_default()));
        Self { instruction, text: c_string(text), file, line: line.unwrap_or(0), source }
    }
}

/// Keeps the refusal of the thread's last failure, or that it was none.
pub(crate) fn remember(refusal: Option<&Refusal>) {
    let texts = refusal.map(|of| {
        let path = of.path.iter().map(|step| {
            let place =
                Place::new(step.slot, &step.text, step.file.as_deref(), step.line, step.source.as_deref());
            (place, c_string(&step.state))
        });
        Box::new(Texts {
            program: c_string(&of.program),
            code: c_string(of.code.name()),
            at: Place::new(of.slot, &of.insn, of.file.as_deref(), of.line, of.source.as_deref()),
            reason: c_string(&of.reason),
            remedy: c_string(of.suggestion.as_deref().unwrap_or_default()),
            path: path.collect(),
        })
    });
    // A thread that is ending may have no storage.
    let _ = LAST.try_with(|last| *last.borrow_mut() = texts);
}

/// Passes the refusal to `take`. Returns `SKEP_E_NOT_FOUND`, without a new message, if the last failure was none.
fn with(take: impl FnOnce(&Texts) -> c_int) -> c_int {
    let found = LAST.try_with(|last| last.borrow().as_deref().map(take));
    found.ok().flatten().unwrap_or(Status::NotFound as c_int)
}

/// Describes the refusal that was the thread's last failure.
///
/// # Safety
///
/// `refusal` is null or writable for the size that it gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_error_refusal(refusal: *mut RefusalInfo) -> c_int {
    let mut found = None;
    let status = with(|texts| {
        found = Some(RefusalInfo {
            size: 0,
            program: texts.program.as_ptr(),
            code: texts.code.as_ptr(),
            instruction: texts.at.instruction.into(),
            text: texts.at.text.as_ptr(),
            reason: texts.reason.as_ptr(),
            remedy: texts.remedy.as_ptr(),
            file: texts.at.file.as_ptr(),
            line: texts.at.line.into(),
            source: texts.at.source.as_ptr(),
            steps: texts.path.len() as u64,
        });
        0
    });
    match found {
        None => status,
        // SAFETY: the caller's promise.
        Some(found) => guard(|| unsafe { options::write(refusal, found) }),
    }
}

/// Describes a step of that refusal, the oldest first.
///
/// # Safety
///
/// `step` is null or writable for the size that it gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_error_step(index: usize, step: *mut StepInfo) -> c_int {
    let mut found = None;
    let status = with(|texts| {
        let Some((place, state)) = texts.path.get(index) else { return Status::NotFound as c_int };
        found = Some(StepInfo {
            size: 0,
            instruction: place.instruction.into(),
            text: place.text.as_ptr(),
            state: state.as_ptr(),
            file: place.file.as_ptr(),
            line: place.line.into(),
            source: place.source.as_ptr(),
        });
        0
    });
    match found {
        None => status,
        // SAFETY: the caller's promise.
        Some(found) => guard(|| unsafe { options::write(step, found) }),
    }
}
