//! Proves that a BPF program is safe, or says why not
