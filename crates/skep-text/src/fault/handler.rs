//! The handler of SIGSEGV and SIGBUS, and how it preserves the host's handlers.
//!
//! The problem: a process has one action for each signal, and it belongs to the host. A library that replaces it
//! must leave every signal that is not its own exactly as it would have been.
//!
//! Ours is a fault that the kernel reports (`si_code` above 0, so no `kill` or `raise`), about the instruction that
//! the thread is at, about its data and not its fetch, if that instruction is a probe in a live text. Then the
//! handler changes the saved context and does nothing else: no system call, no lock, no allocation, no thread-local
//! variable, so `errno` stays too. Every other signal goes to the action that ours replaced:
//!
//! | the action before | what happens |
//! |---|---|
//! | a handler, with or without SA_SIGINFO | it is called, with its requested signals blocked: ours is installed with its `sa_mask`, SA_NODEFER and SA_RESTART |
//! | with SA_RESETHAND | it is called once, then it is SIG_DFL |
//! | SIG_DFL, or SIG_IGN and a fault | SIG_DFL is restored; the instruction faults again and the process dies with the right signal, context and core |
//! | SIG_DFL, and a signal that was sent | SIG_DFL is restored and the signal sent to this thread again |
//! | SIG_IGN, and a signal that was sent | nothing |
//!
//! One difference: our handler always requests the alternate stack (SA_ONSTACK), if the thread has one, because the
//! fault may be a stack overflow.
//!
//! ```text
//!   kernel ──> on_fault::<1> ──> host's later handler ──> on_fault::<0> ──> host's first handler
//!                 layer 1           (did not chain,          layer 0
//!              (put on top later)    or did)
//! ```
//!
//! Protocol of installation: every text with probes checks the current actions (two system calls). If one is not
//! ours, a *layer* is put on top: a separate handler function with a separate saved action. If a host's handler was
//! installed over ours and chains to it, it reaches the layer below, which calls the action before that: a chain of
//! layers has no loops, whether handlers chain or not. There are [`LAYERS`] of them; after that the host is trusted
//! to chain, so that two libraries that both insist on being first do not replace each other for ever. If the action
//! has become SIG_DFL or SIG_IGN, no lower handler is called any more, and the topmost layer is reused.
//!
//! A saved action is stored before its layer is installed, and is never freed: the handler may be reading it.
//!
//! What would break it: a thread that runs probes with these signals blocked: the kernel then ends the process
//! whatever the action is (sigaction(2), signal(7)). A host's handler that is installed over ours a second time,
//! forgets what it replaced the first time, and chains: it is then both above and below ours, and a fault that no
//! handler accepts loops until the stack overflows. Handlers that reset the action to SIG_DFL when called (Rust's
//! own does, for faults that are not stack overflows) remove ours as they would any other; the next text with probes
//! reinstalls it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{io, mem, ptr};

use libc::{c_int, siginfo_t};

use super::INDEX;
use crate::arch;
use crate::error::{Error, SystemCall};

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// How often our handler is put on top of handlers that the host installed over it.
const LAYERS: usize = 4;

/// May unwind: a host's handler can turn a fault into an exception.
type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// Compared by address: always through this table, because a function may have several addresses.
static HANDLERS: [Handler; LAYERS] = [on_fault::<0>, on_fault::<1>, on_fault::<2>, on_fault::<3>];

/// The action that each layer replaced, for each of [`SIGNALS`]. Null until the layer is used.
static BEFORE: [[AtomicPtr<Before>; SIGNALS.len()]; LAYERS] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; SIGNALS.len()] }; LAYERS];

/// How many layers each of [`SIGNALS`] uses. Locked for the few system calls of an installation, never in a handler.
static USED: Mutex<[usize; SIGNALS.len()]> = Mutex::new([0; SIGNALS.len()]);

/// An action that a layer replaced.
struct Before {
    action: libc::sigaction,
    /// SA_RESETHAND, and it has been called.
    spent: AtomicBool,
}

/// Ensures that our handler is called for faults. Two system calls if it is installed already.
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
    // Another thread may have installed it while this one waited.
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
        // An ignored signal interrupted no system call.
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
        // The host installed another handler between our two calls.
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
    // SAFETY: a null action only queries.
    match unsafe { libc::sigaction(signal, ptr::null(), &mut action) } {
        0 => Ok(action),
        _ => Err(refused()),
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    HANDLERS.iter().any(|&handler| handler as *const () as usize == action.sa_sigaction)
}

fn refused() -> Error {
    Error::System { call: SystemCall::InstallHandler, error: io::Error::last_os_error() }
}

/// Called by the kernel, or by a host's handler that chains to the action it replaced.
unsafe extern "C-unwind" fn on_fault<const LAYER: usize>(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: from the kernel, possibly through a host's handler.
    if !unsafe { remedy(signal, info, context) } {
        // SAFETY: as above.
        unsafe { pass_on(&BEFORE[LAYER], signal, info, context) };
    }
}

/// Resumes the thread behind the probe that faulted. False if the fault is not a probe's.
unsafe fn remedy(signal: c_int, info: *mut siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: the caller's.
    if !is_about_the_instruction(signal, unsafe { (*info).si_code }) {
        return false;
    }
    // SAFETY: the caller's.
    let Some(address) = (unsafe { arch::fault::data_fault(info, context) }) else { return false };
    // SAFETY: a data fault at an address inside a range is a text's, and this thread runs that text.
    let Some(remedy) = (unsafe { INDEX.find(address) }).and_then(|table| table.remedy(address)) else {
        return false;
    };
    // SAFETY: the kernel's context; the text's author named the place to resume at.
    unsafe { arch::fault::go_on(context, remedy.resume, remedy.register) };
    true
}

/// Whether the kernel reports an effect of the current instruction. Codes from sigaction(2) and
/// asm-generic/siginfo.h.
fn is_about_the_instruction(signal: c_int, code: c_int) -> bool {
    const SEGV_MTEAERR: c_int = 8;
    match (signal, code) {
        // Sent by a process: SI_USER, SI_QUEUE, SI_TKILL and so on.
        (_, ..=0) => false,
        // Defective memory that the kernel found elsewhere; a wrong memory tag noticed later.
        (libc::SIGBUS, libc::BUS_MCEERR_AO) | (libc::SIGSEGV, SEGV_MTEAERR) => false,
        _ => true,
    }
}

/// Does what the process would have done without our handler.
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
        // Called without ever having been installed: there is no action to pass on to.
        return;
    };
    // SAFETY: the caller's.
    let code = unsafe { (*info).si_code };
    let Before { action, spent } = before;
    match action.sa_sigaction {
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => die(signal, code),
        // Relaxed: only the first caller gets it, and no other data depends on it.
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

/// Restores the signal's default action, which takes effect when the handler returns.
fn die(signal: c_int, code: c_int) {
    // SAFETY: all calls are async-signal-safe (signal-safety(7)); `errno` is the thread's own, and is restored. A
    // zeroed action is SIG_DFL with no signal blocked.
    unsafe {
        let errno = *libc::__errno_location();
        let action: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, &action, ptr::null_mut());
        // A fault recurs when the instruction is retried. A sent signal does not.
        if !is_about_the_instruction(signal, code) {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal);
        }
        *libc::__errno_location() = errno;
    }
}
