//! What a BPF program may see: program types, contexts, helpers, map kinds
