//! What every kind of pack promises.
