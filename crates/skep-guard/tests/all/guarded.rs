//! What guarded memory promises. Tests that need protection keys are ignored here; `cargo xtask pkeys --vm VMLINUZ`
//! runs them in a virtual machine whose processor has them.

use skep_guard::{Closed, Error, Guarded, check};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const SEGV_PKUERR: i32 = 4;

#[test]
fn without_keys_nothing_pretends_to_be_guarded() {
    let dropped = Arc::new(());
    match (check(), Guarded::new(Arc::clone(&dropped)), Closed::new()) {
        (Ok(()), Ok(guarded), Ok(_)) => {
            assert_eq!(guarded.open(Arc::strong_count), 2);
            drop(guarded);
        }
        (Err(Error::NotSupported), Err(Error::NotSupported), Err(error @ Error::NotSupported)) => {
            let text = error.to_string();
            assert!(text.contains("pku in /proc/cpuinfo") && text.contains("another process"), "{text}");
        }
        other => panic!("the answers differ: {other:?}"),
    }
    assert_eq!(Arc::strong_count(&dropped), 1, "the value is dropped in any case");
}

/// What a read of that address does in a child: 0, or the code of its SIGSEGV.
fn read_in_a_child(address: *const u8, prepare: impl FnOnce()) -> i32 {
    extern "C" fn handler(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel passes the information of the signal. _exit(2) may be called here.
        unsafe { libc::_exit((*info).si_code) }
    }
    // SAFETY: the child only sets a handler, reads a byte of its own memory, and ends. The test's program has no other
    // threads that hold locks: it is run with one.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
            prepare();
            std::hint::black_box(address.read_volatile());
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFEXITED(status), "{status:x}");
        libc::WEXITSTATUS(status)
    }
}

#[test]
#[ignore = "needs protection keys: cargo xtask pkeys --vm"]
fn a_read_outside_of_the_closure_faults_and_one_inside_does_not() {
    let guarded = Guarded::new([42u8; 5000]).unwrap();
    let address = guarded.address().cast_const().cast::<u8>();
    assert_eq!(read_in_a_child(address, || {}), SEGV_PKUERR);
    assert_eq!(read_in_a_child(address.wrapping_add(4999), || {}), SEGV_PKUERR, "on each page");
    guarded.open(|bytes| {
        assert!(bytes.iter().all(|byte| *byte == 42));
        assert_eq!(read_in_a_child(address, || {}), 0, "the child has the rights of its parent");
        assert_eq!(
            read_in_a_child(address, || std::mem::forget(Closed::new().unwrap())),
            SEGV_PKUERR,
            "a run within the closure"
        );
    });
    assert_eq!(read_in_a_child(address, || {}), SEGV_PKUERR, "closed again");
}

#[test]
#[ignore = "needs protection keys: cargo xtask pkeys --vm"]
fn it_is_closed_again_after_panics_and_nested_closures() {
    let mut guarded = Guarded::new(7u64).unwrap();
    let address = guarded.address().cast_const().cast::<u8>();
    let other = Guarded::new(8u64).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| guarded.open(|_| panic!("inside")))).is_err());
    assert_eq!(read_in_a_child(address, || {}), SEGV_PKUERR);
    guarded.open_mut(|value| {
        *value += other.open(|other| *other);
        let closed = Closed::new().unwrap();
        assert_eq!(other.open(|other| *other), 8, "a function of the host in a run");
        assert_eq!(read_in_a_child(address, || {}), SEGV_PKUERR);
        drop(closed);
        *value += 1;
    });
    assert_eq!(guarded.open(|value| *value), 16);
    assert_eq!(read_in_a_child(address, || {}), SEGV_PKUERR);
}

#[test]
#[ignore = "needs protection keys: cargo xtask pkeys --vm"]
fn each_thread_opens_for_itself() {
    let guarded = Arc::new(Guarded::new(AtomicU32::new(0)).unwrap());
    let address = guarded.address() as usize;
    let before = std::thread::spawn({
        let guarded = Arc::clone(&guarded);
        move || {
            for _ in 0..1000 {
                guarded.open(|count| count.fetch_add(1, Ordering::Relaxed));
            }
        }
    });
    guarded.open(|count| {
        count.fetch_add(1, Ordering::Relaxed);
        before.join().unwrap();
        // One that is started here inherits the rights, as pkeys(7) says.
        let inherited = std::thread::spawn(move || read_in_a_child(address as *const u8, || {}));
        assert_eq!(inherited.join().unwrap(), 0);
    });
    let after = std::thread::spawn(move || read_in_a_child(address as *const u8, || {}));
    assert_eq!(after.join().unwrap(), SEGV_PKUERR);
    assert_eq!(guarded.open(|count| count.load(Ordering::Relaxed)), 1001);
}

#[test]
#[ignore = "needs protection keys: cargo xtask pkeys --vm"]
fn a_signal_handler_finds_it_closed_and_may_open_it() {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    static mut GUARDED: *const Guarded<u32> = std::ptr::null();
    extern "C" fn handler(_: i32) {
        // SAFETY: set before the signal is sent, and not changed.
        SEEN.store(unsafe { (*GUARDED).open(|value| *value) }, Ordering::Relaxed);
    }
    let guarded = Guarded::new(9u32).unwrap();
    // SAFETY: this thread alone uses it; the handler makes two system-free calls.
    unsafe {
        GUARDED = &raw const guarded;
        libc::signal(libc::SIGUSR1, handler as *const () as usize);
        libc::raise(libc::SIGUSR1);
    }
    assert_eq!(SEEN.load(Ordering::Relaxed), 9);
    let address = guarded.address().cast_const().cast::<u8>();
    assert_eq!(read_in_a_child(address, || {}), SEGV_PKUERR, "and the thread's rights are as before");
}

#[test]
#[ignore = "needs protection keys: cargo xtask pkeys --vm"]
fn memory_is_given_back() {
    for _ in 0..100_000 {
        drop(Guarded::new([1u8; 64]).unwrap());
    }
}
