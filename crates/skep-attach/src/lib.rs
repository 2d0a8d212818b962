//! Programs over live traffic: frames of network interfaces are run through an XDP or tc program in user space.
//!
//! ```text
//!   interface --packet socket, TAP or AF_XDP--> Frame --> Program --verdict--> counted
//!        ^                                                             |
//!        +-------------- sent back, redirected, passed on <------------+
//! ```
//!
//! A [`Port`] is an interface that frames come from and go to. A [`Live`] runs one program over the frames of all its
//! ports. Everything happens in the caller's thread: [`Live::turn`] waits until frames are there and runs the program
//! on each.
//!
//! ```no_run
//! use skep_attach::{Live, Port, Turn};
//!
//! let runtime = skep::Runtime::new()?;
//! let module = runtime.load(&skep::Object::open("examples/firewall.bpf.o")?)?;
//! let mut live = Live::new(&module.programs()[0], vec![Port::packets("eth0", false)?])?;
//! while live.counts().frames < 1000 {
//!     live.turn(&Turn::default())?;
//! }
//! println!("{:?}", live.counts().verdicts);
//! # Ok::<(), skep_attach::Error>(())
//! ```
//!
//! # What a program can decide
//!
//! A packet socket gets copies of frames: the kernel handles the originals whatever the program says. "pass" and
//! "drop" are counted, XDP_TX and redirections send the copy. A TAP device is different: it hands the frames over,
//! and only what the program passes gets on ([`Live::connect`]). So does an AF_XDP socket, for the frames of one
//! queue.
//!
//! # What would break it
//!
//! A frame that was sent must not come in again, or a program that answers would answer itself: packet sockets ignore
//! outgoing frames, and nothing is sent to a loopback device, where each frame that goes out comes in.

mod arrival;
mod error;
mod interface;
mod kernel;
mod live;
mod packets;
mod port;
mod sys;
mod tap;
mod waker;
mod xsk;

pub use arrival::Offload;
pub use error::{Error, TYPES};
pub use interface::{Interface, interfaces};
pub use live::{Counts, Live, Lost, Passage, Turn};
pub use port::Port;
pub use waker::Waker;
