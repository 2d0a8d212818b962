//! How captures are read: by who runs the tests, so that this library needs no reader of its own.

use std::path::Path;
use std::sync::Arc;

/// Reads the packets of a capture, as Ethernet frames; the error is text for people.
pub type Captures = Arc<dyn Fn(&Path) -> Result<Vec<Vec<u8>>, String> + Send + Sync>;
