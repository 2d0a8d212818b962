//! Object pools whose memory is never recycled under a reader
