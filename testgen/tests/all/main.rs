//! One program of all tests here that need no process of their own: it is linked once.

#[path = "../common/mod.rs"]
mod common;

mod attacks;
mod control;
mod every_instruction;
mod exceptions;
mod found;
mod linux;
mod numbers;
mod random_programs;
mod same_everywhere;
mod secrets;
mod soundness;
