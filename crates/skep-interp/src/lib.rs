//! A BPF interpreter: the oracle that every JIT is compared with
