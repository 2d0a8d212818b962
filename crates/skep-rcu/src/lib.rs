//! Thread slots, read sections and grace periods
