//! Compiles verified BPF programs to machine code
