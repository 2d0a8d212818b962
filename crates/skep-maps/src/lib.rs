//! BPF maps
