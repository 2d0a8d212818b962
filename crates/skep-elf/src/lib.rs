//! BPF object files: sections, maps, BTF, relocations, globals
