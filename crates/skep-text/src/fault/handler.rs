//! The handler of SIGSEGV and SIGBUS, and its good behaviour towards the host's.
//!
//! The problem: there is one action for each signal in a process, and it belongs to the host. A library that takes it
//! must leave everything that is not its own exactly as it would have been.
//!
//! What is ours: a fault that the kernel reports (`si_code` above 0, so no `kill` or `raise`), about the instruction
//! that the thread is at, about its data and not about fetching it, where that instruction is a probe in a live text.
//! Then the saved context is changed, and nothing else: no system call, no lock, no allocation, no thread-local
//! variable, so `errno` stays too. Everything else goes on to the action that ours replaced:
//!
//! | the action before | what happens |
//! |---|---|
//! | a handler, with or without SA_SIGINFO | it is called, with the signals blocked that it asked for: ours is installed with its `sa_mask`, SA_NODEFER and SA_RESTART |
//! | with SA_RESETHAND | it is called once, then it is SIG_DFL |
//! | SIG_DFL, or SIG_IGN and a fault | SIG_DFL is restored; the instruction faults again and the process dies with the right signal, context and core |
//! | SIG_DFL, and a signal that was sent | SIG_DFL is restored and the signal sent to this thread again |
//! | SIG_IGN, and a signal that was sent | nothing |
//!
//! One thing differs: ours always asks for the alternate stack (SA_ONSTACK), where the thread has one, because the
//! stack may be what is broken.
//!
//! ```text
//!   kernel ──> on_fault::<1> ──> host's later handler ──> on_fault::<0> ──> host's first handler
//!                 layer 1           (did not chain,          layer 0
//!              (put on top later)    or did)
//! ```
//!
//! Protocol of installation: every text with probes looks at the current actions (two system calls). Where one is not
//! ours, a *layer* is put on top: a function of its own with a saved action of its own. A host's handler that was
//! installed over ours and passes on to it reaches the layer below, which has what was there before: a chain of
//! layers has no loops, whoever chains or does not. There are [`LAYERS`] of them; after that the host is trusted to
//! pass on, which keeps two libraries that both insist on being first from going on for ever. Where the action has
//! become SIG_DFL or SIG_IGN, nothing below is called any more, and the topmost layer is used again.
//!
//! A saved action is stored before its layer is installed, and is never freed: the handler may be reading it.
//!
//! What would break it: a thread that runs probes with these signals blocked: the kernel ends the process then, whatever
//! the action is (sigaction(2), signal(7)). A host's handler that is installed over ours a second time, forgets what it
//! replaced the first time and passes on: it is above and below us then, and a fault that nobody wants goes round until
//! the stack is used up. Handlers that reset the action to SIG_DFL when they are called (Rust's own does, for faults that
//! are no stack overflow) take ours away as they would any other; the next text with probes puts it back.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{io, mem, ptr};

use libc::{c_int, siginfo_t};

use super::INDEX;
use crate::arch;
use crate::error::{Error, Step};

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// How often a handler is put on top of what the host installed over it.
const LAYERS: usize = 4;

/// May unwind: a host's handler can turn a fault into an exception.
type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// Compared by address: always through this table, as a function may have several.
static HANDLERS: [Handler; LAYERS] = [on_fault::<0>, on_fault::<1>, on_fault::<2>, on_fault::<3>];

/// What each layer replaced, for each of [`SIGNALS`]. Null until the layer is used.
static BEFORE: [[AtomicPtr<Before>; SIGNALS.len()]; LAYERS] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; SIGNALS.len()] }; LAYERS];

/// How many layers each of [`SIGNALS`] uses. Held for the few system calls of an installation, by nobody in a handler.
static USED: Mutex<[usize; SIGNALS.len()]> = Mutex::new([0; SIGNALS.len()]);

/// An action that a layer replaced.
struct Before {
    action: libc::sigaction,
    /// SA_RESETHAND, and it has been called.
    spent: AtomicBool,
}

/// Makes sure that faults come to us. Two system calls when they do already.
pub(super) fn install() -> Result<(), Error> {
    for (which, &signal) in SIGNALS.iter().enumerate() {
        if !is_ours(&current(signal)?) {
            put_on_top(which)?;
        }
    }
    Ok(())
}

fn put_on_top(which: usize) -> Result<(), Error> {
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    let signal = SIGNALS[which];
    // Another thread may have done it while we waited.
    let before = current(signal)?;
    if is_ours(&before) {
        return Ok(());
    }
    let is_function = !matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    let layer = match used[which] {
        layer if layer > 0 && !is_function => layer - 1,
        LAYERS => return Ok(()),
        layer => layer,
    };

    let mut ours = before;
    ours.sa_sigaction = HANDLERS[layer] as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    if is_function {
        ours.sa_flags |= before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
    } else {
        // What was ignored interrupted no system call.
        ours.sa_flags |= libc::SA_RESTART;
        // SAFETY: a place for a set.
        unsafe { libc::sigemptyset(&mut ours.sa_mask) };
    }

    save(layer, which, before);
    let mut replaced = before;
    // SAFETY: two valid actions; the handler keeps the rules for handlers.
    if unsafe { libc::sigaction(signal, &ours, &mut replaced) } != 0 {
        return Err(refused());
    }
    used[which] = used[which].max(layer + 1);
    if replaced.sa_sigaction != before.sa_sigaction || replaced.sa_flags != before.sa_flags {
        // The host installed another one between our two calls.
        save(layer, which, replaced);
    }
    Ok(())
}

fn save(layer: usize, which: usize, action: libc::sigaction) {
    let before = Box::leak(Box::new(Before { action, spent: AtomicBool::new(false) }));
    // Release: partner of the load in `pass_on`.
    BEFORE[layer][which].store(before, Ordering::Release);
}

fn current(signal: c_int) -> Result<libc::sigaction, Error> {
    // SAFETY: integers and nullable pointers; zeros are valid.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: a null action only asks.
    match unsafe { libc::sigaction(signal, ptr::null(), &mut action) } {
        0 => Ok(action),
        _ => Err(refused()),
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    HANDLERS.iter().any(|&handler| handler as *const () as usize == action.sa_sigaction)
}

fn refused() -> Error {
    Error::System { step: Step::InstallHandler, error: io::Error::last_os_error() }
}

/// What the kernel calls, or a handler of the host's that passes on to what it replaced.
unsafe extern "C-unwind" fn on_fault<const LAYER: usize>(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: from the kernel, if need be by way of the host.
    if !unsafe { remedy(signal, info, context) } {
        // SAFETY: as above.
        unsafe { pass_on(&BEFORE[LAYER], signal, info, context) };
    }
}

/// Makes the thread go on behind the probe it faulted at. False when it was something else.
unsafe fn remedy(signal: c_int, info: *mut siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: the caller's.
    if !is_about_the_instruction(signal, unsafe { (*info).si_code }) {
        return false;
    }
    // SAFETY: the caller's.
    let Some(address) = (unsafe { arch::fault::data_fault(info, context) }) else { return false };
    // SAFETY: a data fault at an address inside a range is a text's, and this is the thread that runs it.
    let Some(remedy) = (unsafe { INDEX.find(address) }).and_then(|table| table.remedy(address)) else {
        return false;
    };
    // SAFETY: the kernel's context; the text's author named the place to go on at.
    unsafe { arch::fault::go_on(context, remedy.resume, remedy.register) };
    true
}

/// Whether the kernel reports something that the current instruction did. Codes from sigaction(2) and
/// asm-generic/siginfo.h.
fn is_about_the_instruction(signal: c_int, code: c_int) -> bool {
    const SEGV_MTEAERR: c_int = 8;
    match (signal, code) {
        // Sent by somebody: SI_USER, SI_QUEUE, SI_TKILL and so on.
        (_, ..=0) => false,
        // Broken memory that the kernel found elsewhere; a wrong memory tag noticed later.
        (libc::SIGBUS, libc::BUS_MCEERR_AO) | (libc::SIGSEGV, SEGV_MTEAERR) => false,
        _ => true,
    }
}

/// Does what would have been done if our handler were not there.
unsafe fn pass_on(
    before: &[AtomicPtr<Before>; SIGNALS.len()],
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    let which = usize::from(signal == libc::SIGBUS);
    // Acquire: partner of the store in `save`.
    // SAFETY: never freed.
    let Some(before) = (unsafe { before[which].load(Ordering::Acquire).as_ref() }) else {
        // Called without ever having been installed: there is nothing to pass on to.
        return;
    };
    // SAFETY: the caller's.
    let code = unsafe { (*info).si_code };
    let Before { action, spent } = before;
    match action.sa_sigaction {
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => die(signal, code),
        // Relaxed: the first one to come gets it, and nothing else hangs on it.
        _ if action.sa_flags & libc::SA_RESETHAND != 0 && spent.swap(true, Ordering::Relaxed) => {
            die(signal, code);
        }
        address if action.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the host installed it as a handler with three arguments.
            let handler = unsafe { mem::transmute::<usize, Handler>(address) };
            // SAFETY: the arguments are the kernel's.
            unsafe { handler(signal, info, context) };
        }
        address => {
            // SAFETY: the host installed it as a handler with one argument.
            let handler = unsafe { mem::transmute::<usize, extern "C-unwind" fn(c_int)>(address) };
            handler(signal);
        }
    }
}

/// Lets the signal have its default action as soon as the handler has returned.
fn die(signal: c_int, code: c_int) {
    // SAFETY: async-signal-safe calls, all of them (signal-safety(7)); `errno` is the thread's own, and is put back. A
    // zeroed action is SIG_DFL with nothing blocked.
    unsafe {
        let errno = *libc::__errno_location();
        let action: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, &action, ptr::null_mut());
        // A fault comes again when the instruction is tried again. What was sent does not.
        if !is_about_the_instruction(signal, code) {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal);
        }
        *libc::__errno_location() = errno;
    }
}
