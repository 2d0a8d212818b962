//! One binary for all tests that need no process of their own, so that it is linked once.

#[path = "../common/mod.rs"]
mod common;

mod attacks;
mod control;
mod counts;
mod early;
mod every_instruction;
mod exceptions;
mod found;
mod linux;
mod loops;
mod numbers;
mod random_programs;
mod same_everywhere;
mod secrets;
mod soundness;
