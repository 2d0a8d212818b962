//! What code looks like: it is as short as was meant.
