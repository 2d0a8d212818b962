//! The root of the shared library; see `lib.rs`. `build.rs` compiles it.

#![no_std]

mod arch;
mod cache;
mod copy;
mod front;
mod gate;
mod pages;
mod protocol;
mod sync;
mod table;
mod version;

/// There is no code that panics; if there is one day, the application must not go on with half an answer.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn abort() -> !;
    }
    // SAFETY: libc's function, which never returns.
    unsafe { abort() }
}
