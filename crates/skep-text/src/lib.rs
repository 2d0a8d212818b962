//! Executable memory for JITs: packed, W^X, patched and freed safely
