//! A debugger for BPF programs: the library behind `skep debug`.
//!
//! ```text
//!   Program --Recording::of--> every step of a run: registers, frames, stacks, calls
//!                                 |
//!   breakpoints ----------> Cursor: a place in it; next, back, to a breakpoint
//!                                 |
//!   a line of text -------> Session: commands as gdb's, answers as text
//!   messages of editors --> serve: the Debug Adapter Protocol
//! ```
//!
//! A program cannot be stopped in the middle, where it may hold references and locks. So a run is recorded to its end
//! first. To go back is then to look at an earlier step, and a session always shows the same.
#![forbid(unsafe_code)]

mod breakpoint;
mod cursor;
mod dap;
mod recording;
mod session;

pub use breakpoint::Breakpoint;
pub use cursor::{Cursor, Way};
pub use dap::{Launch, serve};
pub use recording::{Called, Frame, MOST_STEPS, Recording, Step};
pub use session::{Answer, Session, evaluate};
