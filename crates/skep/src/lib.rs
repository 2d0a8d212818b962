//! An eBPF runtime for Linux user space
