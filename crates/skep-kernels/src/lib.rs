//! Which releases of Linux will take a BPF program.
//!
//! A program is analysed once, by skep's verifier. Then each release is asked what it lacks, from tables:
//!
//! ```text
//!   object --skep-elf--> source, maps --skep-verifier--> accepted | refused
//!                          |                               |
//!                          |   observed/*.tsv   what kernels answered, call by call
//!                          |   *.tsv            what documents say: the first release
//!                          v                               v
//!                        judge(program, release) --> Judgement: accepted, refused, not certain
//! ```
//!
//! 1. Something is needed that the release lacks: refused. The [`Obstacle`] names it, with instruction and source line.
//! 2. skep's verifier refuses, for a reason that holds in every release: refused.
//! 3. skep's verifier accepts, and nothing suggests that the release's own would not: accepted.
//! 4. Otherwise it is not certain, with the reason.
//!
//! A verdict is for a program that root loads with libbpf, on x86-64, into a kernel with the configuration that
//! distributions have.
//!
//! # Example
//!
//! ```
//! use skep_kernels::{Given, Outcome, Program, Verdict, Version, judge};
//!
//! // An XDP program that calls bpf_loop, which came with 5.17.
//! let code = "r1 = 4\nr2 = func[body] ll\nr3 = 0\nr4 = 0\ncall bpf_loop\nr0 = 2\nexit\nbody:\nr0 = 0\nexit";
//! let insns = skep_isa::assemble(&code.replace("bpf_loop", "181")).expect("correct");
//! let mut source = skep_abi::ProgramSource::new("prog", &skep_abi::XDP, insns);
//! source.functions.push(skep_abi::Function::new("body", 8, false));
//! let unverified = skep_verifier::Unverified {
//!     source: source.clone(),
//!     maps: [].into(),
//!     entry: skep_abi::Entry::Context,
//! };
//! let verified = skep_verifier::verify(unverified, &Default::default())?;
//! let program = Program { source: &source, object: None, outcome: Outcome::Accepted(&verified),
//! given: Given::default(), limited: None };
//!
//! let verdict = |release: &str| judge(&program, release.parse().expect("known")).verdict;
//! assert_eq!(verdict("5.10"), Verdict::Refused);
//! assert_eq!(verdict("6.1"), Verdict::Accepted);
//! # Ok::<(), Box<skep_verifier::Refusal>>(())
//! ```
#![forbid(unsafe_code)]

pub mod documented;
mod doubts;
mod feature;
mod given;
mod judge;
mod judgement;
mod loops;
mod object;
mod observed;
mod refusals;
/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod version;

pub use doubts::abilities;
pub use given::{Configuration, Given, Symbols};
pub use judge::{Outcome, Program, judge, judge_unlinked};
pub use judgement::{Judgement, Obstacle, Place, Rule, Verdict};
pub use object::Object;
pub use observed::Presence;
pub use version::{Version, VersionError};
